#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/block_manager.h"
#include "kernels/ops.h"
#include "scheduler/sequence.h"
#include "scheduler/step_time_model.h"

namespace quire {

// The part of one sequence in a step: tokens start .. start + num_tokens - 1, rows first_row .. of the flat batch.
struct ScheduledSequence {
  int32_t last_row() const { return first_row + num_tokens - 1; }

  // Alive until the plan was committed or failed; its tokens and table are at most appended to.
  Sequence* sequence = nullptr;
  int32_t start = 0;       // its first token's position; all before are in the cache
  int32_t num_tokens = 0;  // >= 1
  // The (only) token is the one that this sample of the plan before gives, which is still in flight; -1: all are known.
  int32_t token_from_sample = -1;
  int32_t first_row = 0;
  int32_t sample = -1;                         // index into `samples`; -1: a part of a prompt, nothing is sampled
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

  // Calls f(sequence, index into `samples`) for all that sample, in order of `samples`.
  template <typename F>
  void ForEachSample(F f) const {
    for (const ScheduledSequence& entry : sequences) {
      if (entry.sample >= 0) f(*entry.sequence, entry.sample);
      for (int32_t i = 0; i < entry.riders_count; ++i) {
        const PlanRider& rider = riders[entry.riders_begin + i];
        f(*rider.sequence, rider.sample);
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
