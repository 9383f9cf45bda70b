#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/sampling_rules.h"
#include "kernels/vocab_scan.h"

// What SamplingRules do to the distribution that a token is drawn from. Ids that are cut get logit -inf or weight 0.
// kernels/README.md has the definitions. Thread-safe.
namespace quire {

// What may be drawn for one row: ids in ascending order with weights that sum to `total`. Either `sparse`, or `weights`
// of the whole vocabulary with sums of its blocks of kWeightBlock. A weight is relative to the best id's 1; below 1e-37
// it is 0.
struct TokenDistribution {
  bool bad_logits = false;  // and then nothing else is set
  float raw_max = 0;        // highest of the raw logits
  bool is_sparse = true;
  std::vector<Candidate> sparse;
  std::vector<float> weights;
  std::vector<double> block_sums;
  double total = 0;
};

// Each of these takes the highest of the logits as `max`: finite. No logit is NaN or +inf. [V] each.

// Cuts ids whose logit is more than `n` standard deviations (of the finite ones) below the highest.
void KeepWithinSigma(float max, float n, absl::Span<float> logits);

// The temperature that the entropy of the logits asks for; `temperature` itself if there is but one finite logit.
// weights [V], block_sums [ceil(V / kWeightBlock)]: working memory.
float DynamicTemperature(absl::Span<const float> logits, float max, float temperature, const SamplingRules& rules,
                         absl::Span<float> weights, absl::Span<double> block_sums);

// Cuts all but the most typical ids whose probabilities at this temperature reach typical_p. Working memory as above.
void KeepTypical(float max, float temperature, float typical_p, absl::Span<float> logits, absl::Span<float> weights,
                 absl::Span<double> block_sums, std::vector<Candidate>* order);

// Cuts from the whole vocabulary's weights those with a surprise above `bound` bits, but for the best.
void CutSurprises(float bound, TokenDistribution* distribution);

// If at least two ids have a probability of `threshold` or more, cuts all of these but the least probable.
void ExcludeTopChoices(float threshold, TokenDistribution* distribution);

// The probability of an id that may be drawn.
double ProbabilityOf(const TokenDistribution& distribution, int32_t id);

}  // namespace quire
