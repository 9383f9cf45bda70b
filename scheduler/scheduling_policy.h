#pragma once

#include <cstdint>
#include <limits>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/lane.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_time_model.h"

namespace quire {

// Who goes first, and who gives way: what the four scheduling policies differ in (README.md has the formulas). Policies
// order; they never touch blocks, plans or states. Time comes in as arguments. Not thread-safe.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;

  // Gives a new request its lane and rank, before any of its sequences waits. `step`: the latest plan.
  virtual void Place(SequenceGroup* group, int64_t step) = 0;
  // The request has ended.
  virtual void Forget(const SequenceGroup& group) { --group.lane->num_requests; }

  // How far from the head of a lane the next one to start is looked for, preferring what has more of its tokens in the
  // prefix cache, or fits while the head does not. Nobody is overtaken more than `max_overtakes` times.
  struct Window {
    int32_t size = 8;
    int32_t max_overtakes = 16;
    bool by_hits = true;
  };
  virtual Window window() const { return {}; }
  // `later` may start before `earlier` of the same lane.
  virtual bool MayOvertake(const SequenceGroup& later, const SequenceGroup& earlier) const {
    return later.request.priority == earlier.request.priority;
  }

  // Running `victim`, ranked after waiting `urgent` and of the same class, may be stopped to make room for it.
  virtual bool MayInterrupt(const SequenceGroup&, const SequenceGroup&) const { return false; }

  // Called first at each step. Returns what the step may take, in seconds, for the sake of the running sequences.
  virtual double BeginStep(absl::Time, absl::Span<Sequence* const>) { return std::numeric_limits<double>::infinity(); }
  // Whether to start this sequence beside the running ones, of which there are some.
  virtual bool MayStart(const Sequence&) { return true; }
  virtual void NoteStart(const Sequence&) {}

  // Whether deadlines are looked at before they have passed, and whether this sequence cannot meet its own any more.
  virtual bool judges_deadlines() const { return false; }
  virtual bool IsHopeless(const Sequence&, absl::Time) const { return false; }
};

// One lane for all requests.
class OneLanePolicy : public SchedulingPolicy {
 public:
  void Place(SequenceGroup* group, int64_t step) final {
    group->lane = &lane_;
    group->rank = RankOf(*group, step);
    ++lane_.num_requests;
  }

 protected:
  virtual int64_t RankOf(const SequenceGroup& group, int64_t step) const = 0;

 private:
  Lane lane_;
};

// First come first served, whatever the priorities.
class FcfsPolicy : public OneLanePolicy {
 public:
  bool MayOvertake(const SequenceGroup&, const SequenceGroup&) const override { return true; }

 protected:
  int64_t RankOf(const SequenceGroup&, int64_t) const override { return 0; }
};

// Lower priority numbers first, with ageing; running work of a worse priority gives way.
class PriorityPolicy : public OneLanePolicy {
 public:
  // So many steps of waiting outweigh one level of priority.
  static constexpr int64_t kStepsPerPriority = 1000;
  static int64_t AgedRank(const SequenceGroup& group, int64_t step) {
    return step + int64_t{group.request.priority} * kStepsPerPriority;
  }

  bool MayInterrupt(const SequenceGroup& urgent, const SequenceGroup& victim) const override {
    return urgent.request.priority < victim.request.priority;
  }

 protected:
  int64_t RankOf(const SequenceGroup& group, int64_t step) const override { return AgedRank(group, step); }
};

// `model` outlives the policy.
std::unique_ptr<SchedulingPolicy> CreatePolicy(const SchedulerOptions& options, const StepTimeModel* model);

}  // namespace quire
