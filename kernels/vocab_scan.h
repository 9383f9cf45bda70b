#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

// Passes over one row of logits, the inner loops of sampling. Results are the same on every x86-64 machine (SSE2 only,
// fixed orders of addition). Thread-safe.
namespace quire {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct MaxScan {
  float max = 0;
  int32_t argmax = -1;  // the lowest id with the highest value; -1 if nothing is above -inf
  bool bad = false;     // a NaN or +inf somewhere; max and argmax then mean nothing
};
MaxScan ScanMax(absl::Span<const float> logits);

struct Candidate {
  float value = 0;
  int32_t id = 0;
};

// The `k` >= 0 best ids above -inf, best first, ties by id. Leaves fewer in *out if there are fewer.
// REQUIRES: no NaN.
void SelectTopK(absl::Span<const float> logits, int64_t k, std::vector<Candidate>* out);

// exp(x) to 2 units in the last place for x in [-87, 0]; 0 below, -inf included. REQUIRES: x <= 0, not NaN.
float ExpNonPositive(float x);

// Values in a block of ExpWeights.
inline constexpr int64_t kWeightBlock = 256;

// weights[i] = exp((logits[i] - max) / temperature), those below `min_weight` set to 0; block_sums[b] = the sum of
// weights[256 b ...]. Returns the sum of block_sums. Sizes: V, V, ceil(V / 256).
// REQUIRES: max is the highest of logits and finite; no NaN; temperature > 0.
double ExpWeights(absl::Span<const float> logits, float max, float temperature, float min_weight,
                  absl::Span<float> weights, absl::Span<double> block_sums);

// log(sum(exp(logits))). REQUIRES: max is the highest of logits and finite; no NaN.
double LogSumExp(absl::Span<const float> logits, float max);

// 1-based place of `id` in the order of SelectTopK.
int32_t RankOf(absl::Span<const float> logits, int32_t id);

}  // namespace quire
