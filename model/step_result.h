#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops.h"

namespace quire {

// What the constraint of a sequence (structured output) adds to one of its samples.
struct ConstrainedSample {
  int32_t sample = 0;                          // index into StepResult::samples
  int32_t forced_begin = 0, forced_count = 0;  // into StepResult::forced: tokens that follow the sample unsampled
  bool ends = false;                           // the text is complete behind these, and nothing may follow
  absl::Status status = {};                    // not OK: the request cannot go on
};

// What a step gave. Reused between steps: the vectors keep their capacity.
struct StepResult {
  std::vector<SampledToken> samples;   // one per ForwardBatch::samples
  std::vector<SampledToken> scores;    // one per ForwardBatch::scores
  std::vector<TokenLogprob> logprobs;  // what the two above point into

  // Not the model's: of samples whose sequences have a constraint, in order of samples.
  std::vector<ConstrainedSample> constrained;
  std::vector<int32_t> forced;

  // Seconds of the step by kind of work; `other` is norms, rope, copies and whatever else the model does.
  OpTimes times;
  // By how much copies of blocks to and from the host made the step longer. 0 if there were none.
  double host_copy_seconds = 0;
};

}  // namespace quire
