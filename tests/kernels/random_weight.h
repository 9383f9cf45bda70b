#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/ops.h"

namespace quire::testing {

// A random matrix in a file format together with what was written: made from integers and scales, so tests need no
// decoder to know the values. value(row, k) = scale * integer (+ minimum), or the float itself.
struct RandomWeight {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> data;

  // Block formats only. A group is 16 inputs of Q6_K, 32 of any other.
  int64_t group = 32;
  bool has_minimum = false;
  std::vector<int32_t> integers;  // [rows, cols]
  std::vector<float> scales;      // [rows, cols / group]
  std::vector<float> minimums;    // [rows, cols / 32]

  std::vector<float> values;  // [rows, cols], f32 rounded after the product and after the sum

  WeightView View() const { return {format, rows, cols, data.data(), RowBytes(format, cols)}; }
};

// How integers are drawn: anywhere in the format's range, or only its two ends.
enum class Integers { kUniform, kExtreme };

// `cols` a multiple of the format's block length.
RandomWeight MakeRandomWeight(WeightFormat format, int64_t rows, int64_t cols, std::mt19937& random,
                              Integers integers = Integers::kUniform);

}  // namespace quire::testing
