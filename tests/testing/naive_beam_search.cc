#include "tests/testing/naive_beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire {
namespace {

struct Candidate {
  double logprob = 0;
  size_t parent = 0;
  TokenLogprob token;
};

struct NaiveBeam {
  double logprob = 0;
  std::vector<int32_t> output;
  std::vector<float> logprobs;

  NaiveBeam Then(const Candidate& candidate) const {
    NaiveBeam next = *this;
    next.logprob = candidate.logprob;
    next.output.push_back(candidate.token.token_id);
    next.logprobs.push_back(candidate.token.logprob);
    return next;
  }
};

}  // namespace

std::vector<NaiveHypothesis> NaiveBeamSearch(
    const std::vector<int32_t>& prompt, const SamplingParams& params, int32_t max_output,
    absl::Span<const int32_t> ending_ids,
    const std::function<std::vector<TokenLogprob>(absl::Span<const int32_t>)>& continuations) {
  const auto width = static_cast<size_t>(params.beam_width);
  const auto ends = [&](int32_t id) { return std::find(ending_ids.begin(), ending_ids.end(), id) != ending_ids.end(); };
  const auto score = [&](double logprob, double length) { return logprob / std::pow(length, params.length_penalty); };
  std::vector<NaiveBeam> beams(1);
  std::vector<NaiveHypothesis> finished;
  for (int32_t length = 1;; ++length) {
    std::vector<Candidate> candidates;
    for (size_t b = 0; b < beams.size(); ++b) {
      std::vector<int32_t> tokens = prompt;
      tokens.insert(tokens.end(), beams[b].output.begin(), beams[b].output.end());
      for (const TokenLogprob& token : continuations(tokens)) {
        if (ends(token.token_id) && length <= params.min_tokens) continue;
        if (token.logprob == -std::numeric_limits<float>::infinity()) continue;
        candidates.push_back({beams[b].logprob + token.logprob, b, token});
      }
    }
    // Of a beam's candidates all but those that end go on, so among so many there are `width` that do.
    const size_t most = std::min(candidates.size(), width + beams.size() * ending_ids.size());
    const auto looked_at = candidates.begin() + static_cast<std::ptrdiff_t>(most);
    std::partial_sort(candidates.begin(), looked_at, candidates.end(), [](const Candidate& x, const Candidate& y) {
      if (x.logprob != y.logprob) return x.logprob > y.logprob;
      if (x.parent != y.parent) return x.parent < y.parent;
      return x.token.token_id < y.token.token_id;
    });
    candidates.erase(looked_at, candidates.end());
    std::vector<NaiveBeam> next;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool over = length == max_output || ends(candidates[i].token.token_id);
      if (over ? i >= width : next.size() == width) continue;
      const NaiveBeam beam = beams[candidates[i].parent].Then(candidates[i]);
      if (over) {
        finished.push_back({score(beam.logprob, length), beam.output, beam.logprobs});
      } else {
        next.push_back(beam);
      }
    }
    std::stable_sort(finished.begin(), finished.end(),
                     [](const NaiveHypothesis& x, const NaiveHypothesis& y) { return x.score > y.score; });
    if (finished.size() > width) finished.resize(width);
    beams = next;
    if (beams.empty()) break;
    if (finished.size() < width) continue;
    if (params.early_stopping == EarlyStopping::kYes) break;
    double best = score(beams[0].logprob, length);
    if (params.early_stopping == EarlyStopping::kNever) best = std::max(best, score(beams[0].logprob, max_output));
    if (best <= finished.back().score) break;
  }
  if (finished.size() > static_cast<size_t>(params.n)) finished.resize(params.n);
  return finished;
}

}  // namespace quire
