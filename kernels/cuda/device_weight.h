#pragma once

#include <cstdint>

namespace quire::cuda {

// How the values of a packed weight lie in device memory; all as multiples of a power of two a row (row_scales), so
// that a row's largest value is near 2^15 and f16 holds it whatever the model's range.
//   kF16   the value
//   kInt8  integer * scale (+ minimum): a scale for each half of a block, and a minimum a block or none
//   kInt4  integer * scale + minimum: 0..15, one scale and one minimum a block
enum class WeightStorage : int32_t { kF16, kInt8, kInt4 };

// Rows of one storage. Values come in tiles of 8 rows by blocks of 32 inputs, [tile][block][row][32], as the tensor
// core's fragments want them: lane 4 g + t of a warp reads values 8 t .. 8 t + 7 of row g, and a warp a tile's block
// from one end to the other. Rows past `rows` and inputs past the last are zeros.
struct DeviceWeight {
  WeightStorage storage = WeightStorage::kF16;
  int32_t rows = 0;
  int32_t blocks = 0;                     // of 32 inputs
  const unsigned char* values = nullptr;  // a multiple of 16
  // [tile][block][row] pairs of f16, low half first: kInt8: scales of inputs 0..15 and 16..31; kInt4: scale, minimum.
  const uint32_t* scales = nullptr;
  const uint16_t* minimums = nullptr;  // kInt8: f16 [tile][block][row], or null
  const float* row_scales = nullptr;   // [tiles * 8]: what a row's values are multiplied by
};
inline constexpr int32_t kWeightTileRows = 8;
inline constexpr int32_t kWeightBlock = 32;

// Bytes of one tile's block.
constexpr int64_t TileBlockBytes(WeightStorage storage) {
  return storage == WeightStorage::kF16 ? 512 : storage == WeightStorage::kInt8 ? 256 : 128;
}

}  // namespace quire::cuda
