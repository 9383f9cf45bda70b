#pragma once

#include <vector>

#include "kernels/ops.h"

namespace quire {

// What a step gave. Reused between steps: the vectors keep their capacity.
struct StepResult {
  std::vector<SampledToken> samples;   // one per ForwardBatch::samples
  std::vector<SampledToken> scores;    // one per ForwardBatch::scores
  std::vector<TokenLogprob> logprobs;  // what the two above point into

  // Seconds of the step by kind of work; `other` is norms, rope, copies and whatever else the model does.
  OpTimes times;
  // By how much copies of blocks to and from the host made the step longer. 0 if there were none.
  double host_copy_seconds = 0;
};

}  // namespace quire
