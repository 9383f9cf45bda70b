#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/half.h"
#include "kernels/cpu/gemm_kernels.h"

// The scalar twin of the linear layers: kernels/README.md, "Linear layers".
namespace quire {
namespace {

constexpr int32_t kPanelRows = 1;

// One record of a panel of one row.
struct Record {
  float scale;
  float scaled_sum;
  int32_t sum[2];
  int8_t q[kBlock];
};

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float LoadScale(const IntFormat& format, const std::byte* array, int64_t index) {
  return format.f32_scales ? Load<float>(array + 4 * index) : F16ToF32(Load<uint16_t>(array + 2 * index));
}

int32_t LoadValue(const IntFormat& format, const std::byte* values, int output, int j) {
  if (!format.nibbles) return static_cast<int32_t>(values[64 * (j / 4) + 4 * output + j % 4]);
  const int32_t both = static_cast<int32_t>(values[64 * (j / 8) + 4 * output + j % 4]);
  return j % 8 < 4 ? both & 15 : both >> 4;
}

void Quantize(const float* x, int64_t /*stride*/, int32_t /*rows*/, int64_t blocks, std::byte* panel) {
  auto* record = reinterpret_cast<Record*>(panel);
  for (int64_t b = 0; b < blocks; ++b, ++record, x += kBlock) {
    uint32_t bits = 0;
    for (int j = 0; j < kBlock; ++j) {
      const uint32_t magnitude = std::bit_cast<uint32_t>(x[j]) & 0x7fffffffu;
      if (magnitude > bits) bits = magnitude;
    }
    const float absmax = std::bit_cast<float>(bits);
    const bool zero = bits < kLeastAbsMaxBits;
    const bool finite = bits < kInfinityBits;
    *record = {};
    record->scale = zero ? 0.0f : absmax / 127.0f;
    for (int j = 0; j < kBlock && finite && !zero; ++j) {
      record->q[j] = static_cast<int8_t>(std::lrint(x[j] * (127.0f / absmax)));
      record->sum[j / 16] += record->q[j];
    }
    record->scaled_sum = record->scale * static_cast<float>(record->sum[0] + record->sum[1]);
  }
}

float IntOutput(const WeightTiles& weight, const IntFormat& format, const std::byte* tile, int output,
                const Record* record) {
  const int group_length = kBlock / format.groups;
  float acc = 0;
  for (int64_t b = 0; b < weight.blocks; ++b, ++record) {
    const std::byte* values = tile + weight.values_offset + b * format.value_bytes();
    for (int g = 0; g < format.groups; ++g) {
      int32_t sum = 0;
      for (int j = g * group_length; j < (g + 1) * group_length; ++j) {
        sum += (LoadValue(format, values, output, j) - format.offset()) * record->q[j];
      }
      const float scale = LoadScale(format, tile, (b * format.groups + g) * kTileOutputs + output);
      acc = std::fma(scale * record->scale, static_cast<float>(sum), acc);
    }
    if (format.has_minimum) {
      acc = std::fma(LoadScale(format, tile + weight.minimums_offset, b * kTileOutputs + output), record->scaled_sum,
                     acc);
    }
  }
  return acc;
}

float LoadWeight(WeightFormat format, const std::byte* row, int64_t k) {
  switch (format) {
    case WeightFormat::kF32:
      return Load<float>(row + 4 * k);
    case WeightFormat::kF16:
      return F16ToF32(Load<uint16_t>(row + 2 * k));
    default:
      return Bf16ToF32(Load<uint16_t>(row + 2 * k));
  }
}

float FloatOutput(const WeightTiles& weight, const std::byte* row, const float* x) {
  float lanes[kFloatLanes] = {};
  for (int64_t k = 0; k < weight.padded_cols; ++k) {
    float& lane = lanes[k % kFloatLanes];
    lane = std::fma(LoadWeight(weight.format, row, k), x[k], lane);
  }
  for (int distance = kFloatLanes / 2; distance > 0; distance /= 2) {
    for (int l = 0; l < distance; ++l) lanes[l] += lanes[l + distance];
  }
  return lanes[0];
}

// Calls output(tile, index in the tile) for each output of the tiles and stores the results, row 0 only.
template <typename F>
void StoreOutputs(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const OutputBlock& out, F output) {
  for (int64_t n = tile_begin * kTileOutputs; n < tile_end * kTileOutputs && n < out.outputs; ++n) {
    float sum = output(weight.data + n / kTileOutputs * weight.tile_bytes, static_cast<int>(n % kTileOutputs));
    if (out.bias != nullptr) sum += out.bias[n];
    out.data[n] = out.add ? out.data[n] + sum : sum;
  }
}

void IntegerGemm(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const std::byte* panel,
                 const OutputBlock& out) {
  const IntFormat format = IntFormatOf(weight.format);
  const auto* record = reinterpret_cast<const Record*>(panel);
  StoreOutputs(weight, tile_begin, tile_end, out,
               [&](const std::byte* tile, int output) { return IntOutput(weight, format, tile, output, record); });
}

void FloatGemm(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t /*stride*/,
               const OutputBlock& out) {
  StoreOutputs(weight, tile_begin, tile_end, out, [&](const std::byte* tile, int output) {
    return FloatOutput(weight, tile + output * (weight.tile_bytes / kTileOutputs), x);
  });
}

}  // namespace

const GemmKernels& GemmKernelsScalar() {
  static constexpr GemmKernels kKernels = {"scalar", kPanelRows, kPanelRows, Quantize, IntegerGemm, FloatGemm};
  return kKernels;
}

}  // namespace quire
