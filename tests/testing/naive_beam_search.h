#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ops.h"
#include "model/sampling_params.h"

namespace quire {

struct NaiveHypothesis {
  double score = 0;
  std::vector<int32_t> output;
  std::vector<float> logprobs;  // of each token
};

// Beam search as plain as possible, as scheduler/beam_search.h defines it: every beam is a whole list of tokens, every
// step looks at the whole vocabulary behind each. `continuations`: of a list of tokens, prompt included, the
// log-probability of each id, in any order. The best n hypotheses.
std::vector<NaiveHypothesis> NaiveBeamSearch(
    const std::vector<int32_t>& prompt, const SamplingParams& params, int32_t max_output,
    absl::Span<const int32_t> ending_ids,
    const std::function<std::vector<TokenLogprob>(absl::Span<const int32_t>)>& continuations);

}  // namespace quire
