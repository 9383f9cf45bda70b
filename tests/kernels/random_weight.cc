#include "tests/kernels/random_weight.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/half.h"

namespace quire::testing {
namespace {

// Smallest and largest integer of a block format.
struct Range {
  int32_t least, most;
};

Range RangeOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {-128, 127};
    case WeightFormat::kQ4_0:
      return {-8, 7};
    case WeightFormat::kQ5_0:
      return {-16, 15};
    case WeightFormat::kQ4_1:
    case WeightFormat::kQ4_K:
      return {0, 15};
    case WeightFormat::kQ5_1:
    case WeightFormat::kQ5_K:
      return {0, 31};
    case WeightFormat::kQ6_K:
      return {-32, 31};
    default:
      QUIRE_CHECK(false);
  }
}

// A random f16 of magnitude up to `most`, put at *at; its value.
float WriteHalf(std::mt19937& random, float most, uint8_t* at) {
  const uint16_t half = F32ToF16(std::uniform_real_distribution<float>(-most, most)(random));
  std::memcpy(at, &half, 2);
  return F16ToF32(half);
}

// Writes one block of a 32-value format from `q`, returns its scale and minimum.
void WriteBlock32(WeightFormat format, const int32_t* q, std::mt19937& random, uint8_t* block, float* scale,
                  float* minimum) {
  *scale = WriteHalf(random, 0.02f, block);
  block += 2;
  if (format == WeightFormat::kQ4_1 || format == WeightFormat::kQ5_1) {
    *minimum = WriteHalf(random, 0.1f, block);
    block += 2;
  }
  if (format == WeightFormat::kQ8_0) {
    for (int j = 0; j < 32; ++j) block[j] = static_cast<uint8_t>(q[j]);
    return;
  }
  const int32_t least = RangeOf(format).least;
  if (format == WeightFormat::kQ5_0 || format == WeightFormat::kQ5_1) {
    uint32_t fifth = 0;
    for (int j = 0; j < 32; ++j) fifth |= static_cast<uint32_t>((q[j] - least) >> 4) << j;
    std::memcpy(block, &fifth, 4);
    block += 4;
  }
  for (int j = 0; j < 16; ++j) {
    block[j] = static_cast<uint8_t>(((q[j] - least) & 15) | (((q[j + 16] - least) & 15) << 4));
  }
}

// Writes a Q4_K or Q5_K block: scales[8], minimums[8].
void WriteBlockK(WeightFormat format, const int32_t* q, std::mt19937& random, uint8_t* block, float* scales,
                 float* minimums) {
  const float d = WriteHalf(random, 0.001f, block), dmin = WriteHalf(random, 0.001f, block + 2);
  int sc[8], m[8];
  for (int g = 0; g < 8; ++g) {
    sc[g] = static_cast<int>(random() % 64);
    m[g] = static_cast<int>(random() % 64);
    scales[g] = d * static_cast<float>(sc[g]);
    minimums[g] = -(dmin * static_cast<float>(m[g]));
  }
  for (int g = 0; g < 4; ++g) {
    block[4 + g] = static_cast<uint8_t>(sc[g] | ((sc[g + 4] >> 4) << 6));
    block[8 + g] = static_cast<uint8_t>(m[g] | ((m[g + 4] >> 4) << 6));
    block[12 + g] = static_cast<uint8_t>((sc[g + 4] & 15) | ((m[g + 4] & 15) << 4));
  }
  uint8_t* nibbles = block + 16;
  if (format == WeightFormat::kQ5_K) {
    for (int i = 0; i < 256; ++i) block[16 + i % 32] |= static_cast<uint8_t>((q[i] >> 4) << (i / 32));
    nibbles += 32;
  }
  for (int i = 0; i < 256; ++i) {
    nibbles[32 * (i / 64) + i % 32] |= static_cast<uint8_t>((q[i] & 15) << (4 * (i / 32 % 2)));
  }
}

// scales[16].
void WriteBlockQ6K(const int32_t* q, std::mt19937& random, uint8_t* block, float* scales) {
  const float d = WriteHalf(random, 0.0005f, block + 208);
  for (int g = 0; g < 16; ++g) {
    const auto scale = static_cast<int8_t>(random());
    block[192 + g] = static_cast<uint8_t>(scale);
    scales[g] = d * static_cast<float>(scale);
  }
  for (int i = 0; i < 256; ++i) {
    const int u = q[i] + 32, half = i / 128, quarter = i % 128 / 32, j = i % 32;
    block[64 * half + 32 * (quarter % 2) + j] |= static_cast<uint8_t>((u & 15) << (4 * (quarter / 2)));
    block[128 + 32 * half + j] |= static_cast<uint8_t>((u >> 4) << (2 * quarter));
  }
}

void FillFloats(std::mt19937& random, RandomWeight* w) {
  std::normal_distribution<float> normal(0, 0.05f);
  const int64_t bytes = Info(w->format).block_bytes;
  for (int64_t i = 0; i < w->rows * w->cols; ++i) {
    float value = normal(random);
    std::byte* at = w->data.data() + i * bytes;
    if (w->format == WeightFormat::kF32) {
      std::memcpy(at, &value, 4);
    } else {
      const bool f16 = w->format == WeightFormat::kF16;
      const uint16_t bits = f16 ? F32ToF16(value) : F32ToBf16(value);
      std::memcpy(at, &bits, 2);
      value = f16 ? F16ToF32(bits) : Bf16ToF32(bits);
    }
    w->values[i] = value;
  }
}

void FillBlocks(std::mt19937& random, Integers integers, RandomWeight* w) {
  const WeightFormatInfo info = Info(w->format);
  const Range range = RangeOf(w->format);
  w->group = w->format == WeightFormat::kQ6_K ? 16 : 32;
  w->has_minimum = range.least == 0;
  w->integers.resize(w->values.size());
  w->scales.resize(w->values.size() / w->group);
  w->minimums.resize(w->values.size() / 32);
  for (int32_t& q : w->integers) {
    q = integers == Integers::kExtreme ? (random() % 2 ? range.least : range.most)
                                       : range.least + static_cast<int32_t>(random() % (range.most - range.least + 1));
  }
  auto* block = reinterpret_cast<uint8_t*>(w->data.data());
  for (int64_t i = 0; i < w->rows * w->cols; i += info.block_length, block += info.block_bytes) {
    const int32_t* q = &w->integers[i];
    float* scales = &w->scales[i / w->group];
    float* minimums = &w->minimums[i / 32];
    if (info.block_length == 32) {
      WriteBlock32(w->format, q, random, block, scales, minimums);
    } else if (w->format == WeightFormat::kQ6_K) {
      WriteBlockQ6K(q, random, block, scales);
    } else {
      WriteBlockK(w->format, q, random, block, scales, minimums);
    }
  }
  for (size_t i = 0; i < w->values.size(); ++i) {
    const float product = w->scales[i / w->group] * static_cast<float>(w->integers[i]);
    w->values[i] = w->has_minimum ? product + w->minimums[i / 32] : product;
  }
}

}  // namespace

RandomWeight MakeRandomWeight(WeightFormat format, int64_t rows, int64_t cols, std::mt19937& random,
                              Integers integers) {
  QUIRE_CHECK(cols % Info(format).block_length == 0);
  RandomWeight w;
  w.format = format, w.rows = rows, w.cols = cols;
  w.data.resize(rows * RowBytes(format, cols));
  w.values.resize(rows * cols);
  if (Info(format).block_length == 1) {
    FillFloats(random, &w);
  } else {
    FillBlocks(random, integers, &w);
  }
  return w;
}

}  // namespace quire::testing
