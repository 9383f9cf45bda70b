// The elementwise kernels against kernels/reference.
#include "kernels/cuda/elementwise.cuh"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/copy_batches.h"
#include "tests/simt/kernel_test.h"

namespace quire::cuda {
namespace {

using simt::DeviceArray;
using testing::DeviceMatrix;
using testing::RandomValues;
using testing::Rounded;
using testing::ToleranceOf;

class ElementwiseTest : public testing::KernelTest {};

struct Shape {
  int32_t rows, cols;
};
// Vectors of 8, tails, rows longer than a block's step of 2,048, one column, one row.
const Shape kShapes[] = {{1, 8}, {3, 64}, {2, 100}, {2, 2052}, {5, 1}, {1, 4099}};
const DType kTypes[] = {DType::kF32, DType::kF16, DType::kBf16};

TEST_F(ElementwiseTest, AddRmsNorm) {
  for (const auto& [rows, cols] : kShapes) {
    for (const DType type : kTypes) {
      for (const bool has_delta : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + " " + std::string(Name(type)));
        const size_t size = static_cast<size_t>(rows) * cols;
        const std::vector<float> residual = RandomValues(size, 1), delta = Rounded(type, RandomValues(size, 2));
        const std::vector<float> weight = RandomValues(cols, 3);
        std::vector<float> expected_residual = residual, expected(size), given_delta = delta;
        ASSERT_TRUE(reference()
                        .AddRmsNorm({.residual = F32Matrix(expected_residual.data(), rows, cols),
                                     .delta = has_delta ? F32Matrix(given_delta.data(), rows, cols) : F32Matrix(),
                                     .weight = weight.data(),
                                     .epsilon = 1e-5f,
                                     .out = F32Matrix(expected.data(), rows, cols)})
                        .ok());
        ForEachSchedule([&, rows = rows, cols = cols] {
          DeviceMatrix device_residual(DType::kF32, rows, cols, residual, 5), device_delta(type, rows, cols, delta, 8);
          DeviceMatrix out(type, rows, cols, 3);
          const DeviceArray<float> device_weight(weight);
          AddRmsNormParams params{.residual = device_residual.view(),
                                  .out = out.view(),
                                  .weight = device_weight.data(),
                                  .epsilon = 1e-5f,
                                  .rows = rows,
                                  .cols = cols};
          if (has_delta) params.delta = device_delta.view();
          ASSERT_EQ(LaunchAddRmsNorm(params, nullptr), cudaSuccess);
          EXPECT_EQ(device_residual.Download(), expected_residual);
          ExpectNear(out.Download(), expected, ToleranceOf(type));
        });
      }
    }
  }
}

TEST_F(ElementwiseTest, ResidualOf16BitsIsNormedAsStored) {
  const int32_t rows = 2, cols = 72;
  const std::vector<float> residual = Rounded(DType::kBf16, RandomValues(rows * cols, 1));
  const std::vector<float> delta = Rounded(DType::kBf16, RandomValues(rows * cols, 2));
  std::vector<float> sum(residual.size()), expected(residual.size()), weight(cols, 1.0f);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = residual[i] + delta[i];
  sum = Rounded(DType::kBf16, sum);
  std::vector<float> given = sum;
  ASSERT_TRUE(reference()
                  .AddRmsNorm({.residual = F32Matrix(given.data(), rows, cols),
                               .delta = F32Matrix(),
                               .weight = weight.data(),
                               .epsilon = 1e-6f,
                               .out = F32Matrix(expected.data(), rows, cols)})
                  .ok());
  ForEachSchedule([&] {
    DeviceMatrix device_residual(DType::kBf16, rows, cols, residual), device_delta(DType::kBf16, rows, cols, delta);
    DeviceMatrix out(DType::kF32, rows, cols);
    const DeviceArray<float> device_weight(weight);
    ASSERT_EQ(LaunchAddRmsNorm({.residual = device_residual.view(),
                                .delta = device_delta.view(),
                                .out = out.view(),
                                .weight = device_weight.data(),
                                .epsilon = 1e-6f,
                                .rows = rows,
                                .cols = cols},
                               nullptr),
              cudaSuccess);
    EXPECT_EQ(device_residual.Download(), sum);
    ExpectNear(out.Download(), expected, 1e-5);
  });
}

TEST_F(ElementwiseTest, SiluMul) {
  for (const auto& [rows, cols] : kShapes) {
    for (const DType type : kTypes) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + " " + std::string(Name(type)));
      std::vector<float> gate_up = Rounded(type, RandomValues(static_cast<size_t>(rows) * cols * 2, 4));
      for (float& value : gate_up) value *= 4;
      gate_up[0] = -80;  // the exponential is large, the result 0
      std::vector<float> expected(static_cast<size_t>(rows) * cols);
      ASSERT_TRUE(reference()
                      .SiluMul({.gate_up = F32Matrix(gate_up.data(), rows, 2 * cols),
                                .out = F32Matrix(expected.data(), rows, cols)})
                      .ok());
      ForEachSchedule([&, rows = rows, cols = cols] {
        DeviceMatrix in(type, rows, 2 * cols, gate_up, 8), out(type, rows, cols, 1);
        ASSERT_EQ(LaunchGatedActivation({.gate_up = in.view(), .out = out.view(), .rows = rows, .cols = cols}, nullptr),
                  cudaSuccess);
        ExpectNear(out.Download(), expected, ToleranceOf(type));
      });
    }
  }
}

TEST_F(ElementwiseTest, GeluMul) {
  const int32_t rows = 3, cols = 44;
  std::vector<float> gate_up = RandomValues(rows * cols * 2, 5), expected(rows * cols);
  for (float& value : gate_up) value *= 3;
  for (int32_t i = 0; i < rows * cols; ++i) {
    const double x = gate_up[i / cols * 2 * cols + i % cols];
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    expected[i] = static_cast<float>(0.5 * x * (1 + std::tanh(u)) * gate_up[i / cols * 2 * cols + cols + i % cols]);
  }
  ForEachSchedule([&] {
    DeviceMatrix in(DType::kF32, rows, 2 * cols, gate_up), out(DType::kF32, rows, cols);
    ASSERT_EQ(
        LaunchGatedActivation(
            {.gate_up = in.view(), .out = out.view(), .activation = Activation::kGelu, .rows = rows, .cols = cols},
            nullptr),
        cudaSuccess);
    ExpectNear(out.Download(), expected, 1e-5);
  });
}

TEST_F(ElementwiseTest, GatherRows) {
  const int32_t table_rows = 7, rows = 5;
  const std::vector<int32_t> index = {6, 0, 3, 3, 5};
  for (const int32_t cols : {1, 64, 100, 2052}) {
    for (const DType type : kTypes) {
      const std::vector<float> table = Rounded(type, RandomValues(static_cast<size_t>(table_rows) * cols, 6));
      std::vector<float> expected;
      for (const int32_t r : index) {
        expected.insert(expected.end(), table.begin() + int64_t{r} * cols, table.begin() + int64_t{r + 1} * cols);
      }
      ForEachSchedule([&] {
        DeviceMatrix from(type, table_rows, cols, table), out(DType::kF32, rows, cols, 2);
        const DeviceArray<int32_t> device_index(index);
        ASSERT_EQ(
            LaunchGatherRows(
                {.from = from.view(), .out = out.view(), .index = device_index.data(), .rows = rows, .cols = cols},
                nullptr),
            cudaSuccess);
        EXPECT_EQ(out.Download(), expected);
      });
    }
  }
}

TEST_F(ElementwiseTest, NothingToDo) {
  EXPECT_EQ(LaunchAddRmsNorm({}, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchGatedActivation({}, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchGatherRows({}, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchCopyBlocks({}, nullptr), cudaSuccess);
}

// Copies in order, by batches of independent ones; some go to the host and back.
TEST_F(ElementwiseTest, CopyBlocks) {
  const int64_t blocks = 6, host_blocks = 3, stride = 20 * 1024 + 64;
  for (const int64_t bytes : {int64_t{16}, int64_t{1040}, int64_t{20} * 1024}) {
    const std::vector<BlockCopyIds> copies = {{0, 1}, {2, 3}, {1, 4}, {4, 0}, {5, 6}, {6, 2}, {3, 8}, {3, 3}, {8, 5}};
    std::vector<unsigned char> cache(blocks * bytes), host(host_blocks * stride);
    std::mt19937 random(7);
    for (auto* memory : {&cache, &host}) {
      for (unsigned char& byte : *memory) byte = static_cast<unsigned char>(random());
    }
    std::vector<unsigned char> expected_cache = cache, expected_host = host;
    const auto block = [&](std::vector<unsigned char>& c, std::vector<unsigned char>& h, int32_t id) {
      return id < blocks ? c.data() + id * bytes : h.data() + (id - blocks) * stride;
    };
    for (const auto& [src, dst] : copies) {
      std::memmove(block(expected_cache, expected_host, dst), block(expected_cache, expected_host, src), bytes);
    }
    ForEachSchedule([&] {
      const DeviceArray<unsigned char> device_cache(cache), device_host(host);
      std::vector<BlockCopyPair> pairs;
      for (const auto& [src, dst] : copies) pairs.push_back({src, dst});
      const DeviceArray<BlockCopyPair> device_pairs(pairs);
      int32_t begin = 0;
      for (const int32_t end : IndependentCopies(copies)) {
        ASSERT_EQ(LaunchCopyBlocks({.cache = device_cache.data(),
                                    .host = device_host.data(),
                                    .num_blocks = blocks,
                                    .block_bytes = bytes,
                                    .host_stride = stride,
                                    .copies = device_pairs.data() + begin,
                                    .count = end - begin},
                                   nullptr),
                  cudaSuccess);
        begin = end;
      }
      EXPECT_EQ(begin, static_cast<int32_t>(copies.size()));
      EXPECT_EQ(device_cache.Download(), expected_cache);
      EXPECT_EQ(device_host.Download(), expected_host);
    });
  }
}

TEST_F(ElementwiseTest, IndependentCopies) {
  EXPECT_EQ(IndependentCopies({}), std::vector<int32_t>{});
  const std::vector<BlockCopyIds> fan_out = {{0, 1}, {0, 2}, {0, 3}}, chain = {{0, 1}, {1, 2}}, swap = {{0, 1}, {2, 0}};
  EXPECT_EQ(IndependentCopies(fan_out), std::vector<int32_t>{3});
  EXPECT_EQ(IndependentCopies(chain), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(IndependentCopies(swap), (std::vector<int32_t>{1, 2}));
}

}  // namespace
}  // namespace quire::cuda
