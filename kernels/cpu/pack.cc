#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/half.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/k_quants.h"

namespace quire {
namespace {

// Far beyond any model; with them no product of sizes overflows.
constexpr int64_t kMaxCols = int64_t{1} << 28;
constexpr int64_t kMaxRows = int64_t{1} << 28;
constexpr int64_t kMaxPackedBytes = int64_t{1} << 46;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

absl::Status CheckPart(const WeightView& part, int64_t index, int64_t cols) {
  const WeightFormatInfo info = Info(part.format);
  if (part.cols != cols) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight part %d: %d cols, %d expected as in part 0", index, part.cols, cols));
  }
  if (part.cols < 1 || part.cols > kMaxCols || part.cols % info.block_length != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight part %d: %d cols, a multiple of %d (block of %s) expected", index, part.cols,
                        info.block_length, info.name));
  }
  if (part.rows < 1 || part.rows > kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight part %d: %d rows, 1 to %d expected", index, part.rows, kMaxRows));
  }
  const int64_t least = RowBytes(part.format, part.cols);
  if (part.data == nullptr || part.row_bytes < least) {
    return absl::InvalidArgumentError(absl::StrFormat("weight part %d: %d bytes a row at %p, at least %d expected",
                                                      index, part.row_bytes, part.data, least));
  }
  if (part.row_order.empty()) return absl::OkStatus();
  if (static_cast<int64_t>(part.row_order.size()) != part.rows) {
    return absl::InvalidArgumentError(
        absl::StrFormat("weight part %d: row order of %d, %d rows", index, part.row_order.size(), part.rows));
  }
  for (int32_t row : part.row_order) {
    if (row < 0 || row >= part.rows) {
      return absl::InvalidArgumentError(
          absl::StrFormat("weight part %d: row order names row %d, 0 to %d exist", index, row, part.rows - 1));
    }
  }
  return absl::OkStatus();
}

WeightTiles LayOut(WeightFormat format, int64_t cols) {
  const IntFormat f = IntFormatOf(format);
  WeightTiles tiles;
  tiles.format = format;
  if (f.max == 0) {
    tiles.padded_cols = RoundUp(cols, kFloatLanes);
    tiles.tile_bytes = kTileOutputs * RowBytes(format, tiles.padded_cols);
    return tiles;
  }
  tiles.blocks = cols / kBlock;
  tiles.minimums_offset = RoundUp(tiles.blocks * f.scale_bytes(), 64);
  tiles.values_offset = tiles.minimums_offset + RoundUp(tiles.blocks * f.minimum_bytes(), 64);
  tiles.tile_bytes = tiles.values_offset + tiles.blocks * f.value_bytes();
  return tiles;
}

// 32 consecutive values of one row: u = value + offset, scale of each group and minimum, as f32.
struct RowBlock {
  uint8_t u[kBlock];
  float scale[2];
  float minimum;
};

float LoadF16(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return F16ToF32(half);
}

void SplitNibbles(const uint8_t* nibbles, uint8_t* u) {
  for (int j = 0; j < 16; ++j) {
    u[j] = nibbles[j] & 15;
    u[j + 16] = nibbles[j] >> 4;
  }
}

void AddFifthBits(const uint8_t* bits, uint8_t* u) {
  for (int j = 0; j < 32; ++j) u[j] = static_cast<uint8_t>(u[j] | (((bits[j / 8] >> (j % 8)) & 1) << 4));
}

// Reads block `b` of 32 inputs of a row in file format `F`.
template <WeightFormat F>
void ReadBlock(const uint8_t* row, int64_t b, RowBlock& out) {
  constexpr WeightFormatInfo kInfo = Info(F);
  constexpr int kPerBlock = kInfo.block_length / kBlock;
  const uint8_t* block = row + b / kPerBlock * kInfo.block_bytes;
  const int group = static_cast<int>(b % kPerBlock);
  if constexpr (F == WeightFormat::kQ8_0) {
    out.scale[0] = LoadF16(block);
    for (int j = 0; j < kBlock; ++j) out.u[j] = block[2 + j] ^ 0x80;
  } else if constexpr (F == WeightFormat::kQ4_0) {
    out.scale[0] = LoadF16(block);
    SplitNibbles(block + 2, out.u);
  } else if constexpr (F == WeightFormat::kQ4_1) {
    out.scale[0] = LoadF16(block);
    out.minimum = LoadF16(block + 2);
    SplitNibbles(block + 4, out.u);
  } else if constexpr (F == WeightFormat::kQ5_0) {
    out.scale[0] = LoadF16(block);
    SplitNibbles(block + 6, out.u);
    AddFifthBits(block + 2, out.u);
  } else if constexpr (F == WeightFormat::kQ5_1) {
    out.scale[0] = LoadF16(block);
    out.minimum = LoadF16(block + 2);
    SplitNibbles(block + 8, out.u);
    AddFifthBits(block + 4, out.u);
  } else if constexpr (F == WeightFormat::kQ4_K || F == WeightFormat::kQ5_K) {
    const KScale s = KScaleOf(block + 4, group);
    out.scale[0] = LoadF16(block) * static_cast<float>(s.scale);
    out.minimum = -(LoadF16(block + 2) * static_cast<float>(s.minimum));
    for (int j = 0; j < kBlock; ++j) {
      out.u[j] =
          static_cast<uint8_t>(F == WeightFormat::kQ4_K ? Q4_KValue(block, group, j) : Q5_KValue(block, group, j));
    }
  } else {
    static_assert(F == WeightFormat::kQ6_K);
    const float d = LoadF16(block + 208);
    for (int i = 0; i < 2; ++i) {
      out.scale[i] = d * static_cast<float>(static_cast<int8_t>(block[192 + 2 * group + i]));
    }
    for (int j = 0; j < kBlock; ++j) out.u[j] = static_cast<uint8_t>(Q6_KValue(block, group, j));
  }
}

// The f16 this came from, or the f32 itself.
template <IntFormat kFormat>
void StoreScale(float value, int64_t index, std::byte* array) {
  if constexpr (kFormat.f32_scales) {
    std::memcpy(array + 4 * index, &value, 4);
  } else {
    const uint16_t half = F32ToF16(value);
    std::memcpy(array + 2 * index, &half, 2);
  }
}

// Writes the values of a block of one output into the 16-output interleaving of its tile.
template <IntFormat kFormat>
void StoreValues(const uint8_t* u, int output, std::byte* values) {
  if constexpr (kFormat.nibbles) {
    for (int v = 0; v < 4; ++v) {
      uint32_t low, high;
      std::memcpy(&low, u + 8 * v, 4);
      std::memcpy(&high, u + 8 * v + 4, 4);
      const uint32_t both = low | (high << 4);
      std::memcpy(values + 64 * v + 4 * output, &both, 4);
    }
  } else {
    for (int q = 0; q < 8; ++q) std::memcpy(values + 64 * q + 4 * output, u + 4 * q, 4);
  }
}

template <WeightFormat F>
void PackIntTile(const uint8_t* const* rows, const WeightTiles& tiles, std::byte* tile) {
  constexpr IntFormat kFormat = IntFormatOf(F);
  RowBlock zero = {};
  for (uint8_t& u : zero.u) u = static_cast<uint8_t>(kFormat.offset());
  for (int64_t b = 0; b < tiles.blocks; ++b) {
    for (int output = 0; output < kTileOutputs; ++output) {
      RowBlock block;
      if (rows[output] != nullptr) {
        ReadBlock<F>(rows[output], b, block);
      } else {
        block = zero;
      }
      for (int g = 0; g < kFormat.groups; ++g) {
        StoreScale<kFormat>(block.scale[g], (b * kFormat.groups + g) * kTileOutputs + output, tile);
      }
      if constexpr (kFormat.has_minimum) {
        StoreScale<kFormat>(block.minimum, b * kTileOutputs + output, tile + tiles.minimums_offset);
      }
      StoreValues<kFormat>(block.u, output, tile + tiles.values_offset + b * kFormat.value_bytes());
    }
  }
}

// Memory is zeroed: padding needs no writing.
void PackFloatTile(const uint8_t* const* rows, const WeightTiles& tiles, int64_t cols, std::byte* tile) {
  for (int output = 0; output < kTileOutputs && rows[output] != nullptr; ++output) {
    std::memcpy(tile + output * RowBytes(tiles.format, tiles.padded_cols), rows[output],
                static_cast<size_t>(RowBytes(tiles.format, cols)));
  }
}

void PackTile(const uint8_t* const* rows, const WeightTiles& tiles, int64_t cols, std::byte* tile) {
  switch (tiles.format) {
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return PackFloatTile(rows, tiles, cols, tile);
    case WeightFormat::kQ8_0:
      return PackIntTile<WeightFormat::kQ8_0>(rows, tiles, tile);
    case WeightFormat::kQ4_0:
      return PackIntTile<WeightFormat::kQ4_0>(rows, tiles, tile);
    case WeightFormat::kQ4_1:
      return PackIntTile<WeightFormat::kQ4_1>(rows, tiles, tile);
    case WeightFormat::kQ5_0:
      return PackIntTile<WeightFormat::kQ5_0>(rows, tiles, tile);
    case WeightFormat::kQ5_1:
      return PackIntTile<WeightFormat::kQ5_1>(rows, tiles, tile);
    case WeightFormat::kQ4_K:
      return PackIntTile<WeightFormat::kQ4_K>(rows, tiles, tile);
    case WeightFormat::kQ5_K:
      return PackIntTile<WeightFormat::kQ5_K>(rows, tiles, tile);
    case WeightFormat::kQ6_K:
      return PackIntTile<WeightFormat::kQ6_K>(rows, tiles, tile);
  }
}

void PackPart(const WeightView& view, const CpuPackedWeight::Part& part, std::byte* data) {
  for (int64_t tile = 0; tile < part.num_tiles(); ++tile) {
    const uint8_t* rows[kTileOutputs] = {};
    for (int output = 0; output < kTileOutputs; ++output) {
      const int64_t row = tile * kTileOutputs + output;
      if (row >= view.rows) break;
      const int64_t stored = view.row_order.empty() ? row : view.row_order[row];
      rows[output] = reinterpret_cast<const uint8_t*>(view.data) + stored * view.row_bytes;
    }
    PackTile(rows, part.tiles, view.cols, data + tile * part.tiles.tile_bytes);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuPackedWeight>> PackCpuWeight(absl::Span<const WeightView> views, WeightArena& arena) {
  if (views.empty()) return absl::InvalidArgumentError("weight of 0 parts, at least 1 expected");
  std::vector<CpuPackedWeight::Part> parts;
  int64_t rows = 0, bytes = 0;
  for (const WeightView& view : views) {
    if (absl::Status status = CheckPart(view, static_cast<int64_t>(parts.size()), views[0].cols); !status.ok()) {
      return status;
    }
    CpuPackedWeight::Part part = {LayOut(view.format, view.cols), rows, view.rows};
    const int64_t part_bytes = part.num_tiles() * part.tiles.tile_bytes;
    if (part_bytes > kMaxPackedBytes - bytes) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("packed weight of %d parts: more than %d bytes", views.size(), kMaxPackedBytes));
    }
    rows += view.rows;
    bytes += part_bytes;
    parts.push_back(part);
  }
  absl::StatusOr<std::byte*> memory = arena.Allocate(bytes);
  if (!memory.ok()) return memory.status();
  std::byte* data = *memory;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].tiles.data = data;
    PackPart(views[i], parts[i], data);
    data += parts[i].num_tiles() * parts[i].tiles.tile_bytes;
  }
  return std::make_unique<CpuPackedWeight>(std::move(parts), rows, views[0].cols, bytes);
}

}  // namespace quire
