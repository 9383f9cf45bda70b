#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block_manager.h"
#include "kernels/ops.h"
#include "scheduler/sequence.h"
#include "scheduler/step_time_model.h"

namespace quire {

// The part of one sequence in a step: tokens start .. start + num_tokens - 1, rows first_row .. of the flat batch. Each
// draft is sampled too: a draft is right if the row before it gives just that token.
struct ScheduledSequence {
  int32_t last_row() const { return first_row + num_tokens - 1; }
  int32_t num_known() const { return num_tokens - num_drafts; }
  // Its tokens as far as the step goes.
  absl::Span<const int32_t> text() const {
    return num_drafts > 0 ? sequence->speculation->text() : absl::MakeConstSpan(sequence->tokens);
  }

  // Alive until the plan was committed or failed; its tokens and table are at most appended to.
  Sequence* sequence = nullptr;
  int32_t start = 0;       // its first token's position; all before are in the cache
  int32_t num_tokens = 0;  // >= 1
  int32_t num_drafts = 0;  // of these, the last: drafts of the sequence behind its one missing token
  // The (only) token is the one that this sample of the plan before gives, which is still in flight; -1: all are known.
  int32_t token_from_sample = -1;
  int32_t first_row = 0;
  // Index into `samples`; -1: a part of a prompt, nothing is sampled. Those of drafts follow it.
  int32_t sample = -1;
  int32_t scores_begin = 0, scores_count = 0;  // into `scores`
  int32_t riders_begin = 0, riders_count = 0;  // into `riders`: those that sample from its last row
};

// A sequence with nothing of its own to compute, for a scheduled one computes the same prompt in this step: it samples
// from that one's last row and goes on from a fork of its table. Holds no blocks until the plan was committed.
struct PlanRider {
  Sequence* sequence = nullptr;
  int32_t sample = 0;  // index into `samples`
};

// What one step does. Data only; made by Scheduler::Schedule, read by the batch builder, given back to Commit or
// FailStep. Reused between steps: the vectors keep their capacity.
struct SchedulePlan {
  bool empty() const { return sequences.empty(); }

  // Calls f(sequence, index into `samples`, num_drafts) for all that sample, in order of `samples`. Samples of so many
  // drafts follow.
  template <typename F>
  void ForEachSample(F f) const {
    for (const ScheduledSequence& entry : sequences) {
      if (entry.sample >= 0) f(*entry.sequence, entry.sample, entry.num_drafts);
      for (int32_t i = 0; i < entry.riders_count; ++i) {
        const PlanRider& rider = riders[entry.riders_begin + i];
        f(*rider.sequence, rider.sample, 0);
      }
    }
  }

  int64_t step = 0;  // 1, 2, ...; 0 if the plan is empty
  int32_t num_tokens = 0;
  StepLoad load;  // what its time depends on
  std::vector<ScheduledSequence> sequences;
  std::vector<PlanRider> riders;
  // To be done before anything else of the step, in order.
  std::vector<BlockCopy> copies;
  IntegrityWork integrity = {};  // around the copies, as it says; empty unless the block manager collects it
  // Complete, logits_row included; those of one row stand next to each other.
  std::vector<SampleRow> samples;
  // What `samples` point to: moves with the plan, is not copied with it. banned_ids, rules and tokens point on into
  // sequence groups, which live as long as the plan.
  std::vector<SampleExtras> extras;
  std::vector<ScoreRow> scores;
  std::vector<uint32_t> masks;  // FillMasks: what allowed_mask of `extras` points into
};

}  // namespace quire
