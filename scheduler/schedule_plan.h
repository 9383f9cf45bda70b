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
  // Alive until the plan was committed or failed; its tokens and table are at most appended to.
  Sequence* sequence = nullptr;
  int32_t start = 0;       // its first token's position; all before are in the cache
  int32_t num_tokens = 0;  // >= 1
  // The (only) token is the one that this sample of the plan before gives, which is still in flight; -1: all are known.
  int32_t token_from_sample = -1;
  int32_t first_row = 0;
  int32_t sample = -1;                         // index into `samples`; -1: a part of a prompt, nothing is sampled
  int32_t scores_begin = 0, scores_count = 0;  // into `scores`
};

// What one step does. Data only; made by Scheduler::Schedule, read by the batch builder, given back to Commit or
// FailStep. Reused between steps: the vectors keep their capacity.
struct SchedulePlan {
  bool empty() const { return sequences.empty(); }

  int64_t step = 0;  // 1, 2, ...; 0 if the plan is empty
  int32_t num_tokens = 0;
  StepLoad load;  // what its time depends on
  std::vector<ScheduledSequence> sequences;
  // To be done before anything else of the step, in order.
  std::vector<BlockCopy> copies;
  IntegrityWork integrity = {};  // around the copies, as it says; empty unless the block manager collects it
  // Complete, logits_row included. banned_ids point into sequence groups, which live as long as the plan.
  std::vector<SampleRow> samples;
  std::vector<ScoreRow> scores;
};

}  // namespace quire
