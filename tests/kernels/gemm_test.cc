#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/kernels/random_weight.h"
#include "tests/kernels/special_floats.h"

namespace quire {
namespace {

using testing::Integers;
using testing::MakeRandomWeight;
using testing::RandomWeight;

std::vector<const GemmKernels*> AllKernels() {
  std::vector<const GemmKernels*> all = {&GemmKernelsScalar()};
  if (GetCpuFeatures().avx2) {
    all.push_back(&GemmKernelsAvx2());
  } else {
    std::cout << "not tested: avx2, which this machine lacks\n";
  }
  if (GetCpuFeatures().avx512_vnni) {
    all.push_back(&GemmKernelsAvx512());
  } else {
    std::cout << "not tested: avx512 with VNNI, which this machine lacks\n";
  }
  return all;
}

// --- the oracle: the arithmetic of kernels/README.md, "Linear layers", read word for word

struct NaiveBlock {
  float scale = 0;
  int32_t q[32] = {};
};

NaiveBlock NaiveQuantize(const float* x) {
  NaiveBlock block;
  float absmax = 0;
  for (int j = 0; j < 32; ++j) {
    if (std::isnan(x[j])) {
      block.scale = kNan;
      return block;
    }
    absmax = std::max(absmax, std::fabs(x[j]));
  }
  if (absmax < std::ldexp(1.0f, -120)) return block;
  block.scale = absmax / 127.0f;
  if (std::isinf(absmax)) return block;
  const float inverse = 127.0f / absmax;
  for (int j = 0; j < 32; ++j) block.q[j] = static_cast<int32_t>(std::nearbyint(x[j] * inverse));
  return block;
}

float NaiveIntOutput(const RandomWeight& w, int64_t n, const std::vector<NaiveBlock>& blocks) {
  float acc = 0;
  for (size_t b = 0; b < blocks.size(); ++b) {
    int32_t activation_sum = 0;
    for (int32_t q : blocks[b].q) activation_sum += q;
    for (int64_t begin = 0; begin < 32; begin += w.group) {
      int32_t sum = 0;
      const int64_t at = n * w.cols + static_cast<int64_t>(b) * 32 + begin;
      for (int64_t j = 0; j < w.group; ++j) sum += w.integers[at + j] * blocks[b].q[begin + j];
      const float scale = w.scales[at / w.group] * blocks[b].scale;
      acc = std::fma(scale, static_cast<float>(sum), acc);
    }
    if (w.has_minimum) {
      const float scaled_sum = blocks[b].scale * static_cast<float>(activation_sum);
      acc = std::fma(w.minimums[n * w.cols / 32 + static_cast<int64_t>(b)], scaled_sum, acc);
    }
  }
  return acc;
}

float NaiveFloatOutput(const RandomWeight& w, int64_t n, const float* x) {
  float lane[16] = {};
  const int64_t padded = (w.cols + 15) / 16 * 16;
  for (int64_t k = 0; k < padded; ++k) {
    const bool inside = k < w.cols;
    lane[k % 16] = std::fma(inside ? w.values[n * w.cols + k] : 0.0f, inside ? x[k] : 0.0f, lane[k % 16]);
  }
  for (int l = 0; l < 8; ++l) lane[l] = lane[l] + lane[l + 8];
  for (int l = 0; l < 4; ++l) lane[l] = lane[l] + lane[l + 4];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

// Rows of inputs and outputs with their own strides.
struct Rows {
  int64_t rows, cols, stride;
  std::vector<float> data;

  Rows(int64_t rows_in, int64_t cols_in, int64_t gap = 3)
      : rows(rows_in), cols(cols_in), stride(cols_in + gap), data(rows_in * stride, -12345.0f) {}
  F32Matrix view() { return {data.data(), rows, cols, stride}; }
  float* row(int64_t r) { return data.data() + r * stride; }
};

Rows RandomInputs(int64_t rows, int64_t cols, std::mt19937& random) {
  Rows x(rows, cols);
  std::normal_distribution<float> normal(0, 1);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < cols; ++k) x.row(r)[k] = normal(random) * (random() % 64 == 0 ? 30.0f : 1.0f);
  }
  return x;
}

Rows NaiveLinear(const std::vector<RandomWeight>& parts, Rows& x, const float* bias) {
  int64_t outputs = 0;
  for (const RandomWeight& w : parts) outputs += w.rows;
  Rows out(x.rows, outputs);
  for (int64_t t = 0; t < x.rows; ++t) {
    std::vector<NaiveBlock> blocks;
    for (int64_t k = 0; k + 32 <= x.cols; k += 32) blocks.push_back(NaiveQuantize(x.row(t) + k));
    int64_t column = 0;
    for (const RandomWeight& w : parts) {
      for (int64_t n = 0; n < w.rows; ++n, ++column) {
        const float sum = w.integers.empty() ? NaiveFloatOutput(w, n, x.row(t)) : NaiveIntOutput(w, n, blocks);
        out.row(t)[column] = bias != nullptr ? sum + bias[column] : sum;
      }
    }
  }
  return out;
}

// --- helpers

std::unique_ptr<CpuPackedWeight> Pack(const std::vector<RandomWeight>& parts, WeightArena& arena) {
  std::vector<WeightView> views;
  for (const RandomWeight& w : parts) views.push_back(w.View());
  auto packed = PackCpuWeight(views, arena);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

// Equal bits, or both NaN.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// The whole buffers, so that writing outside the outputs shows too.
::testing::AssertionResult SameRows(Rows& got, Rows& expected) {
  for (size_t i = 0; i < expected.data.size(); ++i) {
    if (Same(got.data[i], expected.data[i])) continue;
    return ::testing::AssertionFailure() << "row " << i / expected.stride << " column " << i % expected.stride << ": "
                                         << got.data[i] << ", not " << expected.data[i];
  }
  return ::testing::AssertionSuccess();
}

class GemmTest : public ::testing::Test {
 protected:
  // Runs every kernel set on the layer and compares it with the oracle.
  void ExpectOracle(const std::vector<RandomWeight>& parts, Rows& x, const float* bias = nullptr) {
    Rows expected = NaiveLinear(parts, x, bias);
    const std::unique_ptr<CpuPackedWeight> packed = Pack(parts, arena_);
    for (const GemmKernels* kernels : AllKernels()) {
      Rows out(x.rows, packed->rows());
      ASSERT_TRUE(
          RunLinear(*kernels, pool_, {.weight = packed.get(), .x = x.view(), .bias = bias, .out = out.view()}).ok());
      ASSERT_TRUE(SameRows(out, expected)) << kernels->name << " " << Info(parts[0].format).name << " N "
                                           << packed->rows() << " K " << packed->cols() << " M " << x.rows;
    }
  }

  absl::Status RunLinear(const GemmKernels& kernels, ThreadPool& pool, const LinearLayer& layer) {
    Program program;
    QUIRE_RETURN_IF_ERROR(AddLinear({kernels, VectorKernelsScalar()}, pool.num_threads(), layer, scratch_, program));
    program.Run(pool);
    return absl::OkStatus();
  }

  ThreadPool pool_{2};
  WeightArena arena_;
  GemmScratch scratch_;
};

std::vector<int64_t> ColsOf(WeightFormat format) {
  if (Info(format).block_length == 1) return {1, 16, 31, 32, 33, 72, 100, 176, 576};
  if (Info(format).block_length == 32) return {32, 64, 96, 160, 576};
  return {256, 512, 768};
}

// --- tests

TEST_F(GemmTest, EveryFormatAndShapeIsTheOracleToTheBit) {
  std::mt19937 random(10);
  std::vector<int64_t> row_counts;
  for (int64_t m = 1; m <= 20; ++m) row_counts.push_back(m);
  row_counts.push_back(33), row_counts.push_back(64);
  for (WeightFormat format : kAllWeightFormats) {
    for (int64_t cols : ColsOf(format)) {
      for (int64_t m : row_counts) {
        // The big shapes only now and then: the oracle is slow.
        if (cols > 100 && random() % 4 != 0) continue;
        const std::vector<RandomWeight> parts = {
            MakeRandomWeight(format, 1 + static_cast<int64_t>(random() % 70), cols, random)};
        Rows x = RandomInputs(m, cols, random);
        std::vector<float> bias(parts[0].rows);
        for (float& b : bias) b = std::normal_distribution<float>(0, 1)(random);
        ASSERT_NO_FATAL_FAILURE(ExpectOracle(parts, x, random() % 2 ? bias.data() : nullptr));
      }
    }
  }
}

TEST_F(GemmTest, PartsOfDifferentFormatsShareTheInputs) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    std::vector<RandomWeight> parts;
    std::vector<float> bias;
    for (int i = 0; i < 3; ++i) {
      const WeightFormat format = kAllWeightFormats[random() % std::size(kAllWeightFormats)];
      parts.push_back(MakeRandomWeight(format, 1 + static_cast<int64_t>(random() % 40), 256, random));
      for (int64_t n = 0; n < parts.back().rows; ++n) bias.push_back(std::normal_distribution<float>(0, 1)(random));
    }
    Rows x = RandomInputs(1 + static_cast<int64_t>(random() % 30), 256, random);
    ASSERT_NO_FATAL_FAILURE(ExpectOracle(parts, x, bias.data()));
  }
}

// Largest sums of products: nothing may saturate or overflow.
TEST_F(GemmTest, ExtremeIntegersAreExact) {
  std::mt19937 random(12);
  for (WeightFormat format : kAllWeightFormats) {
    if (Info(format).block_length == 1) continue;
    for (int64_t m : {1, 2, 3, 4, 12}) {
      RandomWeight w = MakeRandomWeight(format, 40, 256, random, Integers::kExtreme);
      Rows x(m, 256);
      for (int64_t r = 0; r < m; ++r) {
        // +-127 everywhere; some rows with the sign of a weight row, so that products add up.
        for (int64_t k = 0; k < 256; ++k) {
          const bool follow = r % 2 == 0;
          const bool positive = follow ? w.integers[(r % w.rows) * w.cols + k] >= 0 : random() % 2 == 0;
          x.row(r)[k] = positive ? 127.0f : -127.0f;
        }
        if (r % 4 == 3) std::fill(x.row(r), x.row(r) + 256, r % 8 == 3 ? 127.0f : -127.0f);
      }
      ASSERT_NO_FATAL_FAILURE(ExpectOracle({w}, x));
    }
  }
  // All weights at the least (-128 of Q8_0) or largest value, all activations at one end.
  for (WeightFormat format : kAllWeightFormats) {
    if (Info(format).block_length != 32) continue;
    for (float end : {127.0f, -127.0f}) {
      RandomWeight w = MakeRandomWeight(format, 16, 64, random, Integers::kExtreme);
      Rows x(4, 64);
      for (int64_t r = 0; r < 4; ++r) std::fill(x.row(r), x.row(r) + 64, end);
      ASSERT_NO_FATAL_FAILURE(ExpectOracle({w}, x));
    }
  }
}

TEST_F(GemmTest, ZeroTinyAndHugeInputs) {
  std::mt19937 random(13);
  const float tiny = std::ldexp(1.0f, -120), below = std::nextafter(tiny, 0.0f);
  const float largest = std::numeric_limits<float>::max();
  for (WeightFormat format : kAllWeightFormats) {
    const RandomWeight w = MakeRandomWeight(format, 20, 256, random);
    Rows x = RandomInputs(13, 256, random);
    std::fill(x.row(0), x.row(0) + 256, 0.0f);
    std::fill(x.row(1), x.row(1) + 256, -0.0f);
    std::fill(x.row(2), x.row(2) + 256, tiny);
    std::fill(x.row(3), x.row(3) + 256, below);
    std::fill(x.row(4), x.row(4) + 256, std::numeric_limits<float>::denorm_min());
    std::fill(x.row(5), x.row(5) + 32, largest);
    std::fill(x.row(6), x.row(6) + 32, 0.0f);
    // Ties: halves of the scale round to even.
    for (int k = 0; k < 32; ++k) x.row(7)[k] = k == 0 ? 127.0f : static_cast<float>(k) - 16.5f;
    ASSERT_NO_FATAL_FAILURE(ExpectOracle({w}, x));
  }
}

TEST_F(GemmTest, NonFiniteInputsSpoilTheirOwnRowOnly) {
  std::mt19937 random(14);
  for (WeightFormat format : kAllWeightFormats) {
    const RandomWeight w = MakeRandomWeight(format, 20, 256, random);
    Rows x = RandomInputs(5, 256, random);
    x.row(1)[17] = kNan;
    x.row(2)[255] = kInfinity;
    x.row(3)[0] = -kInfinity;
    x.row(3)[1] = kNan;
    ASSERT_NO_FATAL_FAILURE(ExpectOracle({w}, x));
    if (Info(format).block_length == 1) continue;  // an infinity times a weight may stay infinite
    const std::unique_ptr<CpuPackedWeight> packed = Pack({w}, arena_);
    for (const GemmKernels* kernels : AllKernels()) {
      Rows out(5, 20);
      ASSERT_TRUE(RunLinear(*kernels, pool_, {.weight = packed.get(), .x = x.view(), .out = out.view()}).ok());
      for (int64_t r = 0; r < 5; ++r) {
        for (int64_t n = 0; n < 20; ++n) {
          EXPECT_EQ(std::isnan(out.row(r)[n]), r >= 1 && r <= 3) << kernels->name << " row " << r;
        }
      }
    }
  }
}

TEST_F(GemmTest, ARowIsTheSameAloneAndInAnyBatch) {
  std::mt19937 random(15);
  ThreadPool alone(1);
  for (WeightFormat format : kAllWeightFormats) {
    const std::unique_ptr<CpuPackedWeight> packed = Pack({MakeRandomWeight(format, 100, 512, random)}, arena_);
    Rows x = RandomInputs(37, 512, random);
    for (const GemmKernels* kernels : AllKernels()) {
      Rows batch(37, 100);
      ASSERT_TRUE(RunLinear(*kernels, pool_, {.weight = packed.get(), .x = x.view(), .out = batch.view()}).ok());
      for (int64_t r = 0; r < 37; ++r) {
        Rows one(1, 100);
        ASSERT_TRUE(
            RunLinear(*kernels, alone, {.weight = packed.get(), .x = x.view().slice_rows(r, 1), .out = one.view()})
                .ok());
        ASSERT_EQ(std::memcmp(one.row(0), batch.row(r), 100 * sizeof(float)), 0) << kernels->name << " row " << r;
      }
    }
  }
}

// Against a plain product of the decoded weights: rounding of float sums, and of activations to 1/254 of their block's
// largest.
TEST_F(GemmTest, IsCloseToThePlainProduct) {
  std::mt19937 random(16);
  for (WeightFormat format : kAllWeightFormats) {
    const RandomWeight w = MakeRandomWeight(format, 64, 768, random);
    const std::unique_ptr<CpuPackedWeight> packed = Pack({w}, arena_);
    Rows x = RandomInputs(8, 768, random);
    const bool exact_inputs = Info(format).block_length == 1;
    for (const GemmKernels* kernels : AllKernels()) {
      Rows out(8, 64);
      ASSERT_TRUE(RunLinear(*kernels, pool_, {.weight = packed.get(), .x = x.view(), .out = out.view()}).ok());
      for (int64_t r = 0; r < 8; ++r) {
        for (int64_t n = 0; n < 64; ++n) {
          double product = 0, bound = 0;
          for (int64_t k = 0; k < 768; ++k) {
            const double value = w.values[n * 768 + k];
            const float* block = x.row(r) + k / 32 * 32;
            float absmax = 0;
            for (int j = 0; j < 32; ++j) absmax = std::max(absmax, std::fabs(block[j]));
            product += value * x.row(r)[k];
            bound +=
                std::fabs(value) * (exact_inputs ? 0.0 : absmax / 254 * 1.01) + 1e-4 * std::fabs(value * x.row(r)[k]);
          }
          EXPECT_NEAR(out.row(r)[n], product, bound) << kernels->name << " " << Info(format).name;
        }
      }
    }
  }
}

// A norm before the product, a sum after it: as if each were done by itself.
TEST_F(GemmTest, NormAndSumInOnePassAreTheSame) {
  std::mt19937 random(20);
  for (WeightFormat format : kAllWeightFormats) {
    for (int64_t cols : ColsOf(format)) {
      if (cols > 100 && random() % 2 != 0) continue;
      for (int64_t m : {int64_t{1}, int64_t{13}, 8192 / cols + 1}) {  // few and many inputs
        if (m > 600) continue;
        const RandomWeight w = MakeRandomWeight(format, 1 + static_cast<int64_t>(random() % 70), cols, random);
        const std::unique_ptr<CpuPackedWeight> packed = Pack({w}, arena_);
        Rows x = RandomInputs(m, cols, random);
        const std::vector<float> norm(cols, 0.75f), bias(w.rows, 0.5f);
        for (const GemmKernels* kernels : AllKernels()) {
          Rows normed(m, cols), product(m, w.rows), expected = RandomInputs(m, w.rows, random), out = expected;
          for (int64_t r = 0; r < m; ++r) {
            VectorKernelsScalar().add_rms_norm(x.row(r), nullptr, norm.data(), 1e-5f, normed.row(r), cols);
          }
          const LinearLayer plain = {
              .weight = packed.get(), .x = normed.view(), .bias = bias.data(), .out = product.view()};
          ASSERT_TRUE(RunLinear(*kernels, pool_, plain).ok());
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t n = 0; n < w.rows; ++n) expected.row(r)[n] += product.row(r)[n];
          }
          LinearLayer fused = plain;
          fused.x = x.view();
          fused.norm_weight = norm.data();
          fused.epsilon = 1e-5f;
          fused.out = out.view();
          fused.add = true;
          ASSERT_TRUE(RunLinear(*kernels, pool_, fused).ok());
          ASSERT_TRUE(SameRows(out, expected))
              << kernels->name << " " << Info(format).name << " K " << cols << " M " << m;
        }
      }
    }
  }
}

TEST_F(GemmTest, NoRowsIsNoWork) {
  std::mt19937 random(17);
  const std::unique_ptr<CpuPackedWeight> packed = Pack({MakeRandomWeight(WeightFormat::kQ4_0, 20, 32, random)}, arena_);
  for (const GemmKernels* kernels : AllKernels()) {
    Rows x(0, 32), out(0, 20);
    ASSERT_TRUE(RunLinear(*kernels, pool_, {.weight = packed.get(), .x = x.view(), .out = out.view()}).ok());
  }
}

TEST(GemmScratchTest, GrowsAndKeepsItsMemory) {
  GemmScratch scratch;
  ASSERT_TRUE(scratch.Reserve(2, 100, 1000).ok());
  std::byte* const first = scratch.shared();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.own(1)) % 64, 0u);
  EXPECT_GE(scratch.own(0) - scratch.shared(), 1000);
  EXPECT_GE(scratch.own(1) - scratch.own(0), 100);
  ASSERT_TRUE(scratch.Reserve(2, 100, 10).ok());
  EXPECT_EQ(scratch.shared(), first);
  EXPECT_GE(scratch.own(0) - scratch.shared(), 1000);
  ASSERT_TRUE(scratch.Reserve(2, 1000, 100000).ok());
  std::memset(scratch.shared(), 1, 100000);
  std::memset(scratch.own(1), 1, 1000);
}

TEST(GemmScratchTest, MemoryThatIsNotThereIsAnError) {
  GemmScratch scratch;
  ASSERT_TRUE(scratch.Reserve(1, 0, 1000).ok());
  EXPECT_EQ(scratch.Reserve(1, 0, int64_t{1} << 50).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(scratch.Reserve(1, 0, 1000).ok());
  std::memset(scratch.shared(), 1, 1000);
}

}  // namespace
}  // namespace quire
