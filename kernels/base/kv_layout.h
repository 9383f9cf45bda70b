#pragma once

#include <cstdint>

#include "kernels/base/dtype.h"

// How K and V of one block and head lie in a paged KV cache and how its int8 rows are made: the one definition for all
// backends. nvcc reads it, too, and so do the units of instruction sets, which may call what is always inlined.
#if defined(__CUDACC__)
#define QUIRE_KV_INLINE __host__ __device__ __forceinline__
#else
#define QUIRE_KV_INLINE [[gnu::always_inline]] inline
#endif

namespace quire {

// A run, [K: slot x row | V: slot x row], and for int8 the f32 scales behind, [K: slot | V: slot]. Offsets are bytes
// from its beginning.
struct KvRunLayout {
  int32_t block_size = 0;   // tokens
  int64_t row_bytes = 0;    // the values of K (or V) of one token
  int64_t scale_bytes = 0;  // of the scale of a row: 0 or 4

  QUIRE_KV_INLINE int64_t k_row(int32_t slot) const { return slot * row_bytes; }
  QUIRE_KV_INLINE int64_t v_row(int32_t slot) const { return (block_size + slot) * row_bytes; }
  QUIRE_KV_INLINE int64_t k_scale(int32_t slot) const {
    return int64_t{2} * block_size * row_bytes + slot * scale_bytes;
  }
  QUIRE_KV_INLINE int64_t v_scale(int32_t slot) const { return k_scale(block_size + slot); }
  QUIRE_KV_INLINE int64_t bytes() const { return int64_t{2} * block_size * (row_bytes + scale_bytes); }
};

constexpr KvRunLayout MakeKvRunLayout(DType type, int32_t block_size, int64_t head_dim) {
  return {block_size, head_dim * SizeOf(type), KvScaleBytes(type)};
}

// A row of int8, value = integer * scale, from the largest magnitude in it:
//   scale    largest / 127; 0 if largest < 2^-120; NaN if a value is not finite, which whoever reads the row will see
//   integer  nearest even of x * (127 / largest), -127 .. 127; 0 where the scale is 0 or NaN
inline constexpr float kKvInt8Max = 127.0f;
inline constexpr float kKvInt8Least = 0x1p-120f;
QUIRE_KV_INLINE float KvInt8Scale(float largest) { return largest < kKvInt8Least ? 0.0f : largest / kKvInt8Max; }
QUIRE_KV_INLINE float KvInt8Factor(float largest) { return largest < kKvInt8Least ? 0.0f : kKvInt8Max / largest; }

}  // namespace quire
