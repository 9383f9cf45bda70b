#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/simt.cuh"

// The running softmax of one row: the largest score and the sum of 2^(score - max), in units of log2. The empty state
// is
// (-inf, 0). Sums of weighted values are rescaled by the same factors.
namespace quire::cuda {

inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2 = 0.69314718055994531f;

struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0;
};

// What a state's sums are multiplied by when its maximum becomes `max`. Zero for the empty state, also if max is -inf.
__device__ __forceinline__ float RescaleTo(float max, float old_max) {
  return old_max == -INFINITY ? 0.0f : ptx::Exp2(old_max - max);
}

// A score before the softmax, in log2 units: scale, soft cap, ALiBi. distance = query position - key position.
struct ScoreRule {
  float scale = 0;
  float softcap = 0;  // 0: none
};
__device__ __forceinline__ float AdjustScore(const ScoreRule& rule, float dot, float slope, int distance) {
  float score = dot * rule.scale;
  if (rule.softcap > 0) {
    // tanh(y) = 1 - 2 / (1 + exp(2 y))
    const float y = score / rule.softcap;
    score = rule.softcap * (1.0f - 2.0f / (1.0f + ptx::Exp2(2.0f * kLog2E * y)));
  }
  score -= slope * static_cast<float>(distance);
  return score * kLog2E;
}

// The learned sink joins the sum as one more logit without a value. Returns what the sum of values is to be multiplied
// by, and the natural logarithm of the whole sum. has_sink false: no sink.
__device__ __forceinline__ float FinishSoftmax(const SoftmaxState& state, bool has_sink, float sink, float* logsumexp) {
  const float sink_score = has_sink ? sink * kLog2E : -INFINITY;
  const float max = fmaxf(state.max, sink_score);
  const float kept = RescaleTo(max, state.max);
  const float total = state.sum * kept + RescaleTo(max, sink_score);
  *logsumexp = (max + ptx::Log2(total)) * kLn2;
  return total > 0 ? kept / total : 0.0f;
}

}  // namespace quire::cuda
