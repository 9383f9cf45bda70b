#pragma once

#include <cstdint>

#include "scheduler/scheduling_policy.h"

namespace quire {

// Deadlines and latency targets. The one that must start first goes first; a request starts only if it and the running
// ones can still make it by the step-time model; what cannot make it even alone is ended at once.
class DeadlinePolicy : public OneLanePolicy {
 public:
  explicit DeadlinePolicy(const StepTimeModel* model) : model_(*model) {}

  Window window() const override { return {32, std::numeric_limits<int32_t>::max(), false}; }
  bool MayOvertake(const SequenceGroup&, const SequenceGroup&) const override { return true; }
  double BeginStep(absl::Time now, absl::Span<Sequence* const> running) override;
  bool MayStart(const Sequence& sequence) override;
  void NoteStart(const Sequence& sequence) override;
  bool judges_deadlines() const override { return true; }
  bool IsHopeless(const Sequence& sequence, absl::Time now) const override;

  // A request without deadline and targets is ranked as if it had to begin within this.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

 protected:
  int64_t RankOf(const SequenceGroup& group, int64_t step) const override;

 private:
  // The work that a sequence still needs when it computes `prefill` tokens and then one a step.
  struct Work {
    int64_t prefill = 0, steps = 0, context = 0;  // context: mean of the decode steps
  };
  static Work WorkOf(const SequenceGroup& group, int32_t known, int32_t computed, int32_t outputs);
  double SecondsAlone(const Work& work) const;

  const StepTimeModel& model_;
  // As of this step.
  absl::Time now_;
  StepLoad decoding_;            // if all that run did decode
  int64_t pending_prefill_ = 0;  // tokens
  double limit_ = std::numeric_limits<double>::infinity();
};

}  // namespace quire
