#include "kernels/cpu/packed_weight.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/half.h"
#include "kernels/dequantize.h"

namespace quire {
namespace {

float LoadScale(const IntFormat& format, const std::byte* array, int64_t index) {
  if (format.f32_scales) {
    float value;
    std::memcpy(&value, array + 4 * index, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, array + 2 * index, 2);
  return F16ToF32(half);
}

int LoadValue(const IntFormat& format, const std::byte* values, int output, int j) {
  if (!format.nibbles) return static_cast<int>(values[64 * (j / 4) + 4 * output + j % 4]);
  const int both = static_cast<int>(values[64 * (j / 8) + 4 * output + j % 4]);
  return j % 8 < 4 ? both & 15 : both >> 4;
}

// Row `output` of one tile of a block format. Multiplies and adds one by one, as DequantizeRow does.
void LookupIntRow(const WeightTiles& tiles, const std::byte* tile, int output, float* out) {
  const IntFormat format = IntFormatOf(tiles.format);
  const int group_length = kBlock / format.groups;
  for (int64_t b = 0; b < tiles.blocks; ++b, out += kBlock) {
    const std::byte* values = tile + tiles.values_offset + b * format.value_bytes();
    float scale[2], minimum = 0;
    for (int g = 0; g < format.groups; ++g) {
      scale[g] = LoadScale(format, tile, (b * format.groups + g) * kTileOutputs + output);
    }
    if (format.has_minimum) minimum = LoadScale(format, tile + tiles.minimums_offset, b * kTileOutputs + output);
    for (int j = 0; j < kBlock; ++j) {
      const float product =
          static_cast<float>(LoadValue(format, values, output, j) - format.offset()) * scale[j / group_length];
      out[j] = format.has_minimum ? product + minimum : product;
    }
  }
}

}  // namespace

void LookupRows(const CpuPackedWeight& weight, absl::Span<const int32_t> ids, F32Matrix out) {
  QUIRE_CHECK(out.rows == static_cast<int64_t>(ids.size()) && out.cols == weight.cols());
  for (int64_t t = 0; t < out.rows; ++t) {
    QUIRE_CHECK(ids[t] >= 0 && ids[t] < weight.rows());
    const CpuPackedWeight::Part* part = &weight.parts().front();
    while (ids[t] >= part->first_row + part->rows) ++part;
    const WeightTiles& tiles = part->tiles;
    const int64_t row = ids[t] - part->first_row;
    const std::byte* tile = tiles.data + row / kTileOutputs * tiles.tile_bytes;
    const int output = static_cast<int>(row % kTileOutputs);
    if (tiles.blocks > 0) {
      LookupIntRow(tiles, tile, output, out.row(t));
    } else {
      DequantizeRow(tiles.format, tile + output * RowBytes(tiles.format, tiles.padded_cols), out.row(t), out.cols);
    }
  }
}

}  // namespace quire
