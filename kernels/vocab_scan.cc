#include "kernels/vocab_scan.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/exp_polynomial.h"

namespace quire {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool Better(const Candidate& a, const Candidate& b) { return a.value > b.value || (a.value == b.value && a.id < b.id); }

float HighestOf(__m128 lanes) {
  lanes = _mm_max_ps(lanes, _mm_movehl_ps(lanes, lanes));
  return _mm_cvtss_f32(_mm_max_ss(lanes, _mm_shuffle_ps(lanes, lanes, 1)));
}

// exp of four values x <= 0, without NaN.
__m128 Exp4(__m128 x) {
  namespace ep = exp_polynomial;
  const auto all = [](float value) { return _mm_set1_ps(value); };
  const __m128 in_range = _mm_cmpge_ps(x, all(ep::kMin));
  const __m128 shifted = _mm_add_ps(_mm_mul_ps(x, all(ep::kLog2E)), all(ep::kRound));
  const __m128 n = _mm_sub_ps(shifted, all(ep::kRound));
  const __m128 r = _mm_sub_ps(_mm_sub_ps(x, _mm_mul_ps(n, all(ep::kLn2High))), _mm_mul_ps(n, all(ep::kLn2Low)));
  __m128 p = all(ep::kC4);
  for (float c : {ep::kC3, ep::kC2, ep::kC1, ep::kC0}) p = _mm_add_ps(_mm_mul_ps(p, r), all(c));
  p = _mm_add_ps(_mm_add_ps(_mm_mul_ps(_mm_mul_ps(r, r), p), r), all(1.0f));
  const __m128i exponent = _mm_slli_epi32(_mm_castps_si128(shifted), 23);
  return _mm_and_ps(_mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(p), exponent)), in_range);
}

// Loads up to 4 values, missing ones as `fill`.
__m128 LoadUpTo4(const float* values, int64_t count, float fill) {
  if (count >= 4) return _mm_loadu_ps(values);
  alignas(16) float lanes[4] = {fill, fill, fill, fill};
  std::copy(values, values + count, lanes);
  return _mm_load_ps(lanes);
}

// Sums of even and odd lanes in double.
__m128d AddTo(__m128d sum, __m128 values) {
  return _mm_add_pd(_mm_add_pd(sum, _mm_cvtps_pd(values)), _mm_cvtps_pd(_mm_movehl_ps(values, values)));
}

double SumOf(__m128d sums) { return _mm_cvtsd_f64(sums) + _mm_cvtsd_f64(_mm_unpackhi_pd(sums, sums)); }

}  // namespace

MaxScan ScanMax(absl::Span<const float> logits) {
  constexpr int64_t kBlock = 1024;
  const int64_t size = static_cast<int64_t>(logits.size());
  const __m128 infinity = _mm_set1_ps(kInfinity);
  __m128 all_below_infinity = _mm_castsi128_ps(_mm_set1_epi32(-1));
  MaxScan scan{.max = -kInfinity, .argmax = -1, .bad = false};
  int64_t best_block = -1;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    __m128 highest = _mm_set1_ps(-kInfinity);
    for (int64_t i = begin; i < end; i += 4) {
      const __m128 x = LoadUpTo4(logits.data() + i, end - i, -kInfinity);
      all_below_infinity = _mm_and_ps(all_below_infinity, _mm_cmplt_ps(x, infinity));
      highest = _mm_max_ps(x, highest);
    }
    const float block_max = HighestOf(highest);
    if (block_max > scan.max) scan.max = block_max, best_block = begin;
  }
  scan.bad = _mm_movemask_ps(all_below_infinity) != 0xf;
  if (!scan.bad && best_block >= 0) {
    scan.argmax = static_cast<int32_t>(std::find(logits.begin() + best_block, logits.end(), scan.max) - logits.begin());
  }
  return scan;
}

void SelectTopK(absl::Span<const float> logits, int64_t k, std::vector<Candidate>* out) {
  const int64_t size = static_cast<int64_t>(logits.size());
  out->clear();
  k = std::min(k, size);
  if (k <= 0) return;
  // Candidates gather up to twice k, then the worse half goes. Ids ascend, so one that only equals the k-th is worse.
  const size_t capacity = static_cast<size_t>(std::min(2 * k, size));
  float threshold = -kInfinity;
  const auto keep_best = [&] {
    if (static_cast<int64_t>(out->size()) <= k) return;
    std::nth_element(out->begin(), out->begin() + (k - 1), out->end(), Better);
    out->resize(k);
    threshold = out->back().value;
  };
  for (int64_t i = 0; i < size; i += 4) {
    const __m128 x = LoadUpTo4(logits.data() + i, size - i, -kInfinity);
    if (_mm_movemask_ps(_mm_cmpgt_ps(x, _mm_set1_ps(threshold))) == 0) continue;
    for (int64_t j = i; j < std::min(i + 4, size); ++j) {
      if (!(logits[j] > threshold)) continue;
      out->push_back({logits[j], static_cast<int32_t>(j)});
      if (out->size() == capacity) keep_best();
    }
  }
  keep_best();
  std::sort(out->begin(), out->end(), Better);
}

float ExpNonPositive(float x) { return _mm_cvtss_f32(Exp4(_mm_set1_ps(x))); }

double ExpWeights(absl::Span<const float> logits, float max, float temperature, float min_weight,
                  absl::Span<float> weights, absl::Span<double> block_sums) {
  const int64_t size = static_cast<int64_t>(logits.size());
  const __m128 max4 = _mm_set1_ps(max), temperature4 = _mm_set1_ps(temperature), min4 = _mm_set1_ps(min_weight);
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kWeightBlock) {
    const int64_t end = std::min(begin + kWeightBlock, size);
    __m128d sums = _mm_setzero_pd();
    for (int64_t i = begin; i < end; i += 4) {
      const __m128 x = LoadUpTo4(logits.data() + i, end - i, -kInfinity);
      __m128 weight = Exp4(_mm_div_ps(_mm_sub_ps(x, max4), temperature4));
      weight = _mm_and_ps(weight, _mm_cmpge_ps(weight, min4));
      sums = AddTo(sums, weight);
      if (end - i >= 4) {
        _mm_storeu_ps(weights.data() + i, weight);
      } else {
        alignas(16) float lanes[4];
        _mm_store_ps(lanes, weight);
        std::copy(lanes, lanes + (end - i), weights.data() + i);
      }
    }
    block_sums[begin / kWeightBlock] = SumOf(sums);
    total += block_sums[begin / kWeightBlock];
  }
  return total;
}

double LogSumExp(absl::Span<const float> logits, float max) {
  const int64_t size = static_cast<int64_t>(logits.size());
  __m128d sums = _mm_setzero_pd();
  for (int64_t i = 0; i < size; i += 4) {
    const __m128 x = LoadUpTo4(logits.data() + i, size - i, -kInfinity);
    sums = AddTo(sums, Exp4(_mm_sub_ps(x, _mm_set1_ps(max))));
  }
  return static_cast<double>(max) + std::log(SumOf(sums));
}

int32_t RankOf(absl::Span<const float> logits, int32_t id) {
  const float value = logits[id];
  int32_t rank = 1;
  for (int32_t i = 0; i < id; ++i) rank += logits[i] >= value ? 1 : 0;
  for (size_t i = id + 1; i < logits.size(); ++i) rank += logits[i] > value ? 1 : 0;
  return rank;
}

}  // namespace quire
