#include "kernels/cuda/weight_packing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/half.h"
#include "kernels/dequantize.h"
#include "kernels/k_quants.h"

namespace quire::cuda {
namespace {

// 32 values: integer * scale of its half + minimum.
struct Block {
  int32_t integers[kWeightBlock] = {};
  float scales[2] = {};
  float minimum = 0;
};

float LoadF16(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return F16ToF32(half);
}

// Layouts: kernels/dequantize.cc. `bytes`: the 32 values' block.
void ReadBlock32(WeightFormat format, const uint8_t* bytes, Block* block) {
  const bool has_minimum = format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1;
  const bool is_5_bit = format == WeightFormat::kQ5_0 || format == WeightFormat::kQ5_1;
  block->scales[0] = block->scales[1] = LoadF16(bytes);
  block->minimum = has_minimum ? LoadF16(bytes + 2) : 0;
  bytes += has_minimum ? 4 : 2;
  if (format == WeightFormat::kQ8_0) {
    for (int j = 0; j < kWeightBlock; ++j) block->integers[j] = static_cast<int8_t>(bytes[j]);
    return;
  }
  const uint8_t* nibbles = is_5_bit ? bytes + 4 : bytes;
  for (int j = 0; j < kWeightBlock; ++j) {
    int32_t& integer = block->integers[j];
    integer = j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
    if (is_5_bit) integer |= ((bytes[j / 8] >> (j % 8)) & 1) << 4;
    if (format == WeightFormat::kQ5_0) integer -= 16;
  }
  if (format == WeightFormat::kQ4_0) block->minimum = -8 * block->scales[0];  // its integers stay 0 .. 15
}

// Block `group` (0..7) of the 256 values at `bytes`.
void ReadBlockK(WeightFormat format, const uint8_t* bytes, int group, Block* block) {
  if (format == WeightFormat::kQ6_K) {
    const float d = LoadF16(bytes + 208);
    for (int half = 0; half < 2; ++half) {
      block->scales[half] = d * static_cast<float>(static_cast<int8_t>(bytes[192 + 2 * group + half]));
    }
    block->minimum = 0;
    for (int j = 0; j < kWeightBlock; ++j) block->integers[j] = Q6_KValue(bytes, group, j) - 32;
    return;
  }
  const KScale scale = KScaleOf(bytes + 4, group);
  block->scales[0] = block->scales[1] = LoadF16(bytes) * static_cast<float>(scale.scale);
  block->minimum = -(LoadF16(bytes + 2) * static_cast<float>(scale.minimum));
  for (int j = 0; j < kWeightBlock; ++j) {
    block->integers[j] =
        format == WeightFormat::kQ4_K ? Q4_KValue(bytes, group, j) : static_cast<int32_t>(Q5_KValue(bytes, group, j));
  }
}

// Block `index` of a row.
void ReadBlock(WeightFormat format, const std::byte* row, int64_t index, Block* block) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const WeightFormatInfo info = Info(format);
  if (info.block_length == kWeightBlock) return ReadBlock32(format, bytes + index * info.block_bytes, block);
  ReadBlockK(format, bytes + index / 8 * info.block_bytes, static_cast<int>(index % 8), block);
}

WeightStorage StorageOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return WeightStorage::kF16;
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ4_K:
      return WeightStorage::kInt4;
    default:
      return WeightStorage::kInt8;
  }
}

// Of kInt8; kInt4 always has them.
bool HasMinimums(WeightFormat format) { return format == WeightFormat::kQ5_1 || format == WeightFormat::kQ5_K; }

// The power of two that brings `largest` to 2^14 .. 2^15, by its exponent; as PrepareRowsKernel has it.
int ShiftFor(float largest) {
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - 127;
  return exponent == 128 ? 0 : 14 - std::max(exponent, -100);
}

void RaiseTo(float* largest, float value) {
  if (std::fabs(value) > *largest) *largest = std::fabs(value);  // not for NaN
}

class Packer {
 public:
  Packer(HostWeight* weight, int64_t cols) : weight_(*weight), cols_(cols), values_(cols), blocks_(weight->blocks) {}

  void PackRow(WeightFormat format, const std::byte* row, int64_t to) {
    float largest = 0;
    const bool is_f16 = weight_.storage == WeightStorage::kF16;
    if (is_f16) {
      DequantizeRow(format, row, values_.data(), cols_);
      for (const float value : values_) RaiseTo(&largest, value);
    } else {
      for (size_t b = 0; b < blocks_.size(); ++b) {
        ReadBlock(format, row, static_cast<int64_t>(b), &blocks_[b]);
        RaiseToBlock(&largest, blocks_[b]);
      }
    }
    const int shift = ShiftFor(largest);
    const float scale = std::ldexp(1.0f, shift), undo = std::ldexp(1.0f, -shift);
    std::memcpy(weight_.bytes.data() + weight_.row_scales_offset + to * 4, &undo, 4);
    for (int64_t b = 0; b < weight_.blocks; ++b) {
      const int64_t block_row = (to / kWeightTileRows * weight_.blocks + b) * kWeightTileRows + to % kWeightTileRows;
      if (is_f16) {
        PackF16Block(b, block_row, scale);
      } else {
        PackIntBlock(blocks_[b], block_row, scale);
      }
    }
  }

 private:
  // Scales and minimums have to fit as well as values do.
  static void RaiseToBlock(float* largest, const Block& block) {
    RaiseTo(largest, block.minimum);
    for (int j = 0; j < kWeightBlock; ++j) {
      const float scale = block.scales[j / 16];
      RaiseTo(largest, scale);
      RaiseTo(largest, static_cast<float>(block.integers[j]) * scale + block.minimum);
    }
  }

  void PackF16Block(int64_t index, int64_t block_row, float scale) {
    const int64_t count = std::min<int64_t>(kWeightBlock, cols_ - index * kWeightBlock);
    unsigned char* out = weight_.bytes.data() + block_row * kWeightBlock * 2;
    for (int64_t j = 0; j < count; ++j) {
      const uint16_t bits = F32ToF16(values_[index * kWeightBlock + j] * scale);
      std::memcpy(out + 2 * j, &bits, 2);
    }
  }

  void PackIntBlock(const Block& block, int64_t block_row, float scale) {
    unsigned char* bytes = weight_.bytes.data();
    const uint16_t minimum = F32ToF16(block.minimum * scale);
    uint16_t pair[2] = {F32ToF16(block.scales[0] * scale), F32ToF16(block.scales[1] * scale)};
    if (weight_.storage == WeightStorage::kInt8) {
      unsigned char* out = bytes + block_row * kWeightBlock;
      for (int j = 0; j < kWeightBlock; ++j) out[j] = static_cast<unsigned char>(block.integers[j]);
    } else {
      unsigned char* out = bytes + block_row * kWeightBlock / 2;
      for (int j = 0; j < kWeightBlock; ++j) {
        out[j / 2] = static_cast<unsigned char>(out[j / 2] | block.integers[j] << (4 * (j % 2)));
      }
      pair[1] = minimum;
    }
    std::memcpy(bytes + weight_.scales_offset + block_row * 4, pair, 4);
    if (weight_.has_minimums) std::memcpy(bytes + weight_.minimums_offset + block_row * 2, &minimum, 2);
  }

  HostWeight& weight_;
  const int64_t cols_;
  std::vector<float> values_;  // of a row
  std::vector<Block> blocks_;  // of a row
};

// Offsets and size of a weight whose rows, blocks and storage are set.
void LayOut(HostWeight* weight) {
  const int64_t tiles = (int64_t{weight->rows} + kWeightTileRows - 1) / kWeightTileRows;
  const int64_t tile_blocks = tiles * weight->blocks;
  int64_t end = 0;
  const auto take = [&end](int64_t bytes) {
    const int64_t begin = end;
    end += (bytes + 255) / 256 * 256;
    return begin;
  };
  take(tile_blocks * TileBlockBytes(weight->storage));
  const bool has_scales = weight->storage != WeightStorage::kF16;
  weight->scales_offset = take(has_scales ? tile_blocks * kWeightTileRows * 4 : 0);
  weight->minimums_offset = take(weight->has_minimums ? tile_blocks * kWeightTileRows * 2 : 0);
  weight->row_scales_offset = take(tiles * kWeightTileRows * 4);
  weight->bytes.resize(end);
}

}  // namespace

DeviceWeight HostWeight::At(const unsigned char* data) const {
  DeviceWeight weight;
  weight.storage = storage;
  weight.rows = rows;
  weight.blocks = blocks;
  weight.values = data;
  if (storage != WeightStorage::kF16) weight.scales = reinterpret_cast<const uint32_t*>(data + scales_offset);
  if (has_minimums) weight.minimums = reinterpret_cast<const uint16_t*>(data + minimums_offset);
  weight.row_scales = reinterpret_cast<const float*>(data + row_scales_offset);
  return weight;
}

std::vector<HostWeight> PackParts(absl::Span<const WeightView> parts) {
  std::vector<HostWeight> packed;
  int32_t first_row = 0;
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    HostWeight& weight = packed.emplace_back();
    weight.storage = StorageOf(parts[begin].format);
    weight.has_minimums = HasMinimums(parts[begin].format);
    weight.first_row = first_row;
    weight.blocks = static_cast<int32_t>((parts[begin].cols + kWeightBlock - 1) / kWeightBlock);
    for (end = begin; end < parts.size() && StorageOf(parts[end].format) == weight.storage &&
                      HasMinimums(parts[end].format) == weight.has_minimums;
         ++end) {
      weight.rows += static_cast<int32_t>(parts[end].rows);
    }
    first_row += weight.rows;
    LayOut(&weight);
    Packer packer(&weight, parts[begin].cols);
    int64_t to = 0;
    for (const WeightView& part : parts.subspan(begin, end - begin)) {
      for (int64_t r = 0; r < part.rows; ++r, ++to) {
        const int64_t stored = part.row_order.empty() ? r : part.row_order[r];
        packer.PackRow(part.format, part.data + stored * part.row_bytes, to);
      }
    }
  }
  return packed;
}

}  // namespace quire::cuda
