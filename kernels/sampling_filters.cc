#include "kernels/sampling_filters.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire {
namespace {

constexpr size_t kFirstTypical = 64;  // ids that are sorted at first

// Sums of the whole vocabulary's weights after some became 0.
void SumBlocks(TokenDistribution* distribution) {
  const std::vector<float>& weights = distribution->weights;
  distribution->total = 0;
  for (size_t b = 0; b < distribution->block_sums.size(); ++b) {
    const auto begin = weights.begin() + static_cast<int64_t>(b) * kWeightBlock;
    const auto end = weights.end() - begin < kWeightBlock ? weights.end() : begin + kWeightBlock;
    distribution->block_sums[b] = std::accumulate(begin, end, 0.0);
    distribution->total += distribution->block_sums[b];
  }
}

// Entropy in nats of weights exp((logit - max) / temperature) that sum to `total`.
double EntropyOf(absl::Span<const float> logits, float max, float temperature, absl::Span<const float> weights,
                 double total) {
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0) sum += static_cast<double>(weights[i]) * ((static_cast<double>(logits[i]) - max) / temperature);
  }
  return std::log(total) - sum / total;
}

}  // namespace

void KeepWithinSigma(float max, float n, absl::Span<float> logits) {
  double sum = 0, squares = 0;
  int64_t count = 0;
  for (const float logit : logits) {
    if (logit > kMinusInfinity) sum += logit, ++count;
  }
  const double mean = sum / static_cast<double>(count);
  for (const float logit : logits) {
    if (logit > kMinusInfinity) squares += (logit - mean) * (logit - mean);
  }
  const double lowest = max - n * std::sqrt(squares / static_cast<double>(count));
  for (float& logit : logits) {
    if (logit < lowest) logit = kMinusInfinity;
  }
}

float DynamicTemperature(absl::Span<const float> logits, float max, float temperature, const SamplingRules& rules,
                         absl::Span<float> weights, absl::Span<double> block_sums) {
  const auto finite = std::count_if(logits.begin(), logits.end(), [](float x) { return x > kMinusInfinity; });
  if (finite <= 1) return temperature;
  const double total = ExpWeights(logits, max, 1, 0, weights, block_sums);
  const double share = EntropyOf(logits, max, 1, weights, total) / std::log(static_cast<double>(finite));
  const double low = std::max(0.0f, temperature - rules.dynatemp_range), high = temperature + rules.dynatemp_range;
  return static_cast<float>(low + (high - low) * std::pow(std::clamp(share, 0.0, 1.0), rules.dynatemp_exponent));
}

void KeepTypical(float max, float temperature, float typical_p, absl::Span<float> logits, absl::Span<float> weights,
                 absl::Span<double> block_sums, std::vector<Candidate>* order) {
  const double total = ExpWeights(logits, max, temperature, 0, weights, block_sums);
  const double entropy = EntropyOf(logits, max, temperature, weights, total), log_total = std::log(total);
  order->clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] == 0) {
      logits[i] = kMinusInfinity;
      continue;
    }
    const double surprise = log_total - (static_cast<double>(logits[i]) - max) / temperature;
    order->push_back({static_cast<float>(std::abs(surprise - entropy)), static_cast<int32_t>(i)});
  }
  const auto closer = [](const Candidate& a, const Candidate& b) {
    return a.value < b.value || (a.value == b.value && a.id < b.id);
  };
  // Sorted in growing parts until the probabilities reach typical_p; equally typical ids stay together.
  double sum = 0;
  size_t next = 0;
  for (size_t sorted = 0, part = kFirstTypical; next < order->size() && sum < typical_p * total; part *= 8) {
    const size_t end = std::min(sorted + part, order->size());
    if (end < order->size()) std::nth_element(order->begin() + sorted, order->begin() + end, order->end(), closer);
    std::sort(order->begin() + sorted, order->begin() + end, closer);
    for (; next < end && sum < typical_p * total; ++next) sum += weights[(*order)[next].id];
    sorted = end;
  }
  const float last = (*order)[next - 1].value;
  for (size_t i = next; i < order->size(); ++i) {
    if ((*order)[i].value > last) logits[(*order)[i].id] = kMinusInfinity;
  }
}

void CutSurprises(float bound, TokenDistribution* distribution) {
  const double lowest = std::min(1.0, distribution->total * std::exp2(-static_cast<double>(bound)));
  for (float& weight : distribution->weights) {
    if (weight < lowest) weight = 0;
  }
  SumBlocks(distribution);
}

void ExcludeTopChoices(float threshold, TokenDistribution* distribution) {
  const double enough = threshold * distribution->total;
  Candidate least;
  int64_t count = 0;
  const auto look_at = [&](float weight, int32_t id) {
    if (weight < enough || weight == 0) return;
    if (count++ == 0 || weight <= least.value) least = {weight, id};  // ids ascend: the highest of equal ones
  };
  const auto is_cut = [&](float weight, int32_t id) { return weight >= enough && weight > 0 && id != least.id; };
  if (distribution->is_sparse) {
    std::vector<Candidate>& sparse = distribution->sparse;
    for (const Candidate& candidate : sparse) look_at(candidate.value, candidate.id);
    if (count < 2) return;
    sparse.erase(
        std::remove_if(sparse.begin(), sparse.end(), [&](const Candidate& c) { return is_cut(c.value, c.id); }),
        sparse.end());
    distribution->total = 0;
    for (const Candidate& candidate : sparse) distribution->total += candidate.value;
    return;
  }
  std::vector<float>& weights = distribution->weights;
  for (size_t id = 0; id < weights.size(); ++id) look_at(weights[id], static_cast<int32_t>(id));
  if (count < 2) return;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (is_cut(weights[id], static_cast<int32_t>(id))) weights[id] = 0;
  }
  SumBlocks(distribution);
}

double ProbabilityOf(const TokenDistribution& distribution, int32_t id) {
  if (!distribution.is_sparse) return distribution.weights[id] / distribution.total;
  const auto found = std::lower_bound(distribution.sparse.begin(), distribution.sparse.end(), id,
                                      [](const Candidate& c, int32_t value) { return c.id < value; });
  return found->value / distribution.total;
}

}  // namespace quire
