#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace quire {

// Decodes one row of `n` values stored as `format` (n a multiple of its block length; `row` has RowBytes(format, n)
// bytes, any alignment) into f32. Exact to the bit with ggml's C decoder: products and differences are rounded one by
// one, never fused. Formats: ggml-common.h of ggml-org/ggml. Thread-safe.
void DequantizeRow(WeightFormat format, const std::byte* row, float* out, int64_t n);

}  // namespace quire
