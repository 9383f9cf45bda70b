// Every wrapper of kernels/cuda/ptx.cuh against plain arithmetic on small integers, bit for bit.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/half.h"
#include "tests/simt/conformance_kernels.h"
#include "tests/simt/simt_test.h"

namespace quire::simt {
namespace {

class ConformanceTest : public SimtTest {};

std::vector<float> SmallIntegers(size_t count, int limit, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> integer(-limit, limit);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(integer(random));
  return values;
}

std::vector<uint16_t> ToBits(const std::vector<float>& values, bool is_bf16) {
  std::vector<uint16_t> bits;
  for (float value : values) bits.push_back(is_bf16 ? F32ToBf16(value) : F32ToF16(value));
  return bits;
}

TEST_F(ConformanceTest, LdMatrix) {
  std::vector<uint16_t> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7 + 1);
  ForEachSchedule([&] {
    const DeviceArray<uint16_t> device_values(values);
    for (const bool transposed : {false, true}) {
      const DeviceArray<uint32_t> out(128);
      ASSERT_EQ(LaunchLdMatrix(device_values.data(), out.data(), transposed), cudaSuccess);
      const std::vector<uint32_t> result = out.Download();
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int m = 0; m < 4; ++m) {
          const auto at = [&](int row, int column) -> uint32_t { return values[(m * 8 + row) * 8 + column]; };
          const uint32_t expected =
              transposed ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
          EXPECT_EQ(result[lane * 4 + m], expected) << transposed << " lane " << lane << " matrix " << m;
        }
      }
    }
  });
}

TEST_F(ConformanceTest, Mma) {
  const std::vector<float> a = SmallIntegers(256, 8, 1), b = SmallIntegers(128, 8, 2), c = SmallIntegers(128, 100, 3);
  for (const bool is_bf16 : {false, true}) {
    ForEachSchedule([&] {
      const DeviceArray<uint16_t> device_a(ToBits(a, is_bf16)), device_b(ToBits(b, is_bf16));
      const DeviceArray<float> device_c(c), d(128);
      ASSERT_EQ(LaunchMma(device_a.data(), device_b.data(), device_c.data(), d.data(), is_bf16), cudaSuccess);
      const std::vector<float> result = d.Download();
      for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
          float expected = c[row * 8 + column];
          for (int k = 0; k < 16; ++k) expected += a[row * 16 + k] * b[k * 8 + column];
          EXPECT_EQ(result[row * 8 + column], expected) << row << " " << column;
        }
      }
    });
  }
}

TEST_F(ConformanceTest, CopyAsync) {
  for (const int piece : {4, 8, 16}) {
    std::vector<unsigned char> from(32 * piece);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 5 + 1);
    std::vector<int> valid(32);
    for (int i = 0; i < 32; ++i) valid[i] = i % 3 == 0 ? 0 : i % 3 == 1 || piece < 16 ? piece : i % piece;
    ForEachSchedule([&] {
      const DeviceArray<unsigned char> device_from(from), out(64 * piece);
      const DeviceArray<int> device_valid(valid);
      ASSERT_EQ(LaunchCopyAsync(device_from.data(), device_valid.data(), out.data(), piece), cudaSuccess);
      const std::vector<unsigned char> result = out.Download();
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < piece; ++i) {
          const unsigned char expected = i < valid[lane] ? from[lane * piece + i] : 0;
          EXPECT_EQ(result[(32 + lane) * piece + i], expected) << piece << " lane " << lane;
          if (lane % 2 == 0) {
            EXPECT_EQ(result[lane * piece + i], expected) << piece << " first group, lane " << lane;
          }
        }
      }
    });
  }
}

TEST_F(ConformanceTest, Exp2AndLog2OfIntegers) {
  std::vector<float> exponents, powers;
  for (int i = -14; i <= 14; ++i) {
    exponents.push_back(static_cast<float>(i));
    powers.push_back(std::ldexp(1.0f, i));
  }
  exponents.push_back(-INFINITY);
  powers.push_back(0);
  const int count = static_cast<int>(exponents.size());
  ForEachSchedule([&] {
    const DeviceArray<float> in(exponents), in_powers(powers), out(exponents.size());
    ASSERT_EQ(LaunchExp2(in.data(), out.data(), count), cudaSuccess);
    EXPECT_EQ(out.Download(), powers);
    ASSERT_EQ(LaunchLog2(in_powers.data(), out.data(), count), cudaSuccess);
    EXPECT_EQ(out.Download(), exponents);
  });
}

TEST_F(ConformanceTest, PackRoundsToNearestEven) {
  std::vector<float> values;
  for (const float base : {1.0f, -3.0f, 0.0f, 255.0f, 1e-5f, 60000.0f}) {
    for (int i = 0; i < 16; ++i) values.push_back(base + base * static_cast<float>(i) * 0x1p-12f);
  }
  ForEachSchedule([&] {
    const DeviceArray<float> in(values);
    const DeviceArray<uint32_t> bf16(values.size() / 2), f16(values.size() / 2);
    ASSERT_EQ(LaunchPack(in.data(), bf16.data(), f16.data(), static_cast<int>(values.size() / 2)), cudaSuccess);
    const std::vector<uint32_t> got_bf16 = bf16.Download(), got_f16 = f16.Download();
    for (size_t i = 0; i < got_bf16.size(); ++i) {
      EXPECT_EQ(got_bf16[i], F32ToBf16(values[2 * i]) | uint32_t{F32ToBf16(values[2 * i + 1])} << 16) << i;
      EXPECT_EQ(got_f16[i], F32ToF16(values[2 * i]) | uint32_t{F32ToF16(values[2 * i + 1])} << 16) << i;
    }
  });
}

float E4m3(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 3) & 15;
  const float mantissa = static_cast<float>(bits & 7) / 8;
  const float value = exponent != 0 ? std::ldexp(1 + mantissa, exponent - 7) : std::ldexp(mantissa, -6);
  return (bits & 128) != 0 ? -value : value;  // the NaN bytes as +-480, as documented
}

TEST_F(ConformanceTest, EightBitValuesUnpackExactly) {
  std::vector<uint32_t> pairs;
  for (uint32_t i = 0; i < 256; ++i) pairs.push_back(i | (255 - i) << 8 | 0xabcd0000u);
  ForEachSchedule([&] {
    const DeviceArray<uint32_t> in(pairs), f16(256), bf16(256);
    ASSERT_EQ(LaunchUnpack8(in.data(), f16.data(), bf16.data(), 256), cudaSuccess);
    const std::vector<uint32_t> got_f16 = f16.Download(), got_bf16 = bf16.Download();
    for (uint32_t i = 0; i < 256; ++i) {
      EXPECT_EQ(F16ToF32(got_f16[i] & 0xffff), E4m3(i)) << i;
      EXPECT_EQ(F16ToF32(static_cast<uint16_t>(got_f16[i] >> 16)), E4m3(255 - i)) << i;
      EXPECT_EQ(Bf16ToF32(got_bf16[i] & 0xffff), static_cast<float>(static_cast<int8_t>(i))) << i;
      EXPECT_EQ(Bf16ToF32(static_cast<uint16_t>(got_bf16[i] >> 16)), static_cast<float>(static_cast<int8_t>(255 - i)));
    }
  });
}

TEST_F(ConformanceTest, ToE4m3IsNearestAndSaturates) {
  std::vector<float> values = {500, -1000, INFINITY, 448, 464, 0, 0x1p-10f, 0x1.8p-10f, 0x1.8p-9f};
  for (uint32_t i = 0; i < 255; ++i) {
    if (i != 127) values.push_back(E4m3(i));
  }
  ForEachSchedule([&] {
    const DeviceArray<float> in(values);
    const DeviceArray<uint8_t> out(values.size());
    ASSERT_EQ(LaunchToE4m3(in.data(), out.data(), static_cast<int>(values.size())), cudaSuccess);
    const std::vector<uint8_t> got = out.Download();
    const std::vector<float> expected = {448, -448, 448, 448, 448, 0, 0, 0x1p-9f, 0x1p-8f};
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(E4m3(got[i]), i < expected.size() ? expected[i] : values[i]) << i;
  });
}

TEST_F(ConformanceTest, LoadStreaming) {
  std::vector<uint32_t> values(100);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 3);
  ForEachSchedule([&] {
    const DeviceArray<uint32_t> in(values), out(values.size());
    ASSERT_EQ(LaunchLoadStreaming(in.data(), out.data(), 25), cudaSuccess);
    EXPECT_EQ(out.Download(), values);
  });
}

}  // namespace
}  // namespace quire::simt
