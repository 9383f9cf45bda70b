// mbarrier, TMA and wgmma together, on small integers, bit for bit.
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/half.h"
#include "tests/simt/conformance_kernels.h"
#include "tests/simt/simt_test.h"

namespace quire::simt {
namespace {

class ConformanceSm90Test : public SimtTest {};

TEST_F(ConformanceSm90Test, Gemm) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> integer(-8, 8);
  for (const auto& [m, n, k] : {std::array{64, 64, 64}, std::array{64, 64, 320}, std::array{100, 72, 136}}) {
    std::vector<uint16_t> a(m * k), b(n * k);
    for (auto* values : {&a, &b}) {
      for (uint16_t& value : *values) value = F32ToBf16(static_cast<float>(integer(random)));
    }
    ForEachSchedule([&, m = m, n = n, k = k] {
      const DeviceArray<uint16_t> device_a(a), device_b(b);
      const DeviceArray<float> c(m * n);
      cudaError_t error = cudaSuccess;
      ASSERT_TRUE(LaunchSm90Gemm(device_a.data(), device_b.data(), c.data(), m, n, k, &error));
      ASSERT_EQ(error, cudaSuccess);
      const std::vector<float> result = c.Download();
      for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
          float expected = 0;
          for (int i = 0; i < k; ++i) expected += Bf16ToF32(a[row * k + i]) * Bf16ToF32(b[column * k + i]);
          ASSERT_EQ(result[row * n + column], expected) << row << " " << column;
        }
      }
    });
  }
}

}  // namespace
}  // namespace quire::simt
