#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/base/half.h"

namespace quire::testing {

// Replaces `count` finite values, K or V of one token and head, by what a KV cache of `type` gives back of them: the
// rules of kernels/base/kv_layout.h read one value at a time.
inline void RoundToStored(DType type, float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  for (int64_t i = 0; i < count; ++i) {
    if (type == DType::kF16) x[i] = F16ToF32(F32ToF16(std::clamp(x[i], -65504.0f, 65504.0f)));
    if (type == DType::kBf16) x[i] = Bf16ToF32(F32ToBf16(x[i]));
    if (type == DType::kI8) x[i] = largest < 0x1p-120f ? 0 : std::nearbyint(x[i] * (127 / largest)) * (largest / 127);
  }
}

}  // namespace quire::testing
