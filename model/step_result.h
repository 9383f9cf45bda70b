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
};

}  // namespace quire
