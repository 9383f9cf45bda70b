#include "kernels/dequantize.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/half.h"
#include "kernels/k_quants.h"

namespace quire {
namespace {

float LoadF16(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return F16ToF32(half);
}

// Blocks of 32, one f16 scale d, an f16 minimum m in the _1 formats, then the bits. Value j of the first half is in the
// low nibble of byte j, value j + 16 in the high one; bit j of the 32-bit word holds the fifth bit of value j.

void DecodeQ8_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(block[2 + j])) * d;
}

void DecodeQ4_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((block[2 + j] & 15) - 8) * d;
    out[j + 16] = static_cast<float>((block[2 + j] >> 4) - 8) * d;
  }
}

void DecodeQ4_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block), m = LoadF16(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(block[4 + j] & 15) * d + m;
    out[j + 16] = static_cast<float>(block[4 + j] >> 4) * d + m;
  }
}

// Value j of 32, 0..31.
int FiveBits(const uint8_t* high_bits, const uint8_t* nibbles, int j) {
  const int low = j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
  return low | (((high_bits[j / 8] >> (j % 8)) & 1) << 4);
}

void DecodeQ5_0(const uint8_t* block, float* out) {
  const float d = LoadF16(block);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(FiveBits(block + 2, block + 6, j) - 16) * d;
}

void DecodeQ5_1(const uint8_t* block, float* out) {
  const float d = LoadF16(block), m = LoadF16(block + 2);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(FiveBits(block + 4, block + 8, j)) * d + m;
}

// K-quants: kernels/k_quants.h.

void DecodeQ4_K(const uint8_t* block, float* out) {
  const float d = LoadF16(block), dmin = LoadF16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const KScale s = KScaleOf(block + 4, group);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    for (int j = 0; j < 32; ++j) out[32 * group + j] = scale * static_cast<float>(Q4_KValue(block, group, j)) - minimum;
  }
}

void DecodeQ5_K(const uint8_t* block, float* out) {
  const float d = LoadF16(block), dmin = LoadF16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const KScale s = KScaleOf(block + 4, group);
    const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
    for (int j = 0; j < 32; ++j) out[32 * group + j] = scale * static_cast<float>(Q5_KValue(block, group, j)) - minimum;
  }
}

void DecodeQ6_K(const uint8_t* block, float* out) {
  const float d = LoadF16(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + group]));
    for (int j = 0; j < 16; ++j) {
      out[16 * group + j] = scale * static_cast<float>(Q6_KValue(block, group / 2, group % 2 * 16 + j) - 32);
    }
  }
}

void DecodeBlocks(WeightFormat format, const uint8_t* row, float* out, int64_t n,
                  void (*decode)(const uint8_t*, float*)) {
  const WeightFormatInfo info = Info(format);
  QUIRE_CHECK(n % info.block_length == 0);
  for (int64_t begin = 0; begin < n; begin += info.block_length, row += info.block_bytes) decode(row, out + begin);
}

}  // namespace

void DequantizeRow(WeightFormat format, const std::byte* row_bytes, float* out, int64_t n) {
  const auto* row = reinterpret_cast<const uint8_t*>(row_bytes);
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(out, row, static_cast<size_t>(n) * sizeof(float));
      return;
    case WeightFormat::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = LoadF16(row + 2 * i);
      return;
    case WeightFormat::kBf16:
      for (int64_t i = 0; i < n; ++i) {
        uint16_t bits;
        std::memcpy(&bits, row + 2 * i, sizeof bits);
        out[i] = Bf16ToF32(bits);
      }
      return;
    case WeightFormat::kQ8_0:
      return DecodeBlocks(format, row, out, n, DecodeQ8_0);
    case WeightFormat::kQ4_0:
      return DecodeBlocks(format, row, out, n, DecodeQ4_0);
    case WeightFormat::kQ4_1:
      return DecodeBlocks(format, row, out, n, DecodeQ4_1);
    case WeightFormat::kQ5_0:
      return DecodeBlocks(format, row, out, n, DecodeQ5_0);
    case WeightFormat::kQ5_1:
      return DecodeBlocks(format, row, out, n, DecodeQ5_1);
    case WeightFormat::kQ4_K:
      return DecodeBlocks(format, row, out, n, DecodeQ4_K);
    case WeightFormat::kQ5_K:
      return DecodeBlocks(format, row, out, n, DecodeQ5_K);
    case WeightFormat::kQ6_K:
      return DecodeBlocks(format, row, out, n, DecodeQ6_K);
  }
}

}  // namespace quire
