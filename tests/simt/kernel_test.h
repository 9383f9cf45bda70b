#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/base/half.h"
#include "kernels/cuda/device_tensor.h"
#include "kernels/factory.h"
#include "tests/simt/simt_test.h"

// What tests of kernels/cuda share: the reference backend, and matrices in device memory of any element type.
namespace quire::testing {

inline std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline uint16_t ToBits16(DType type, float value) { return type == DType::kF16 ? F32ToF16(value) : F32ToBf16(value); }
inline float FromBits16(DType type, uint16_t bits) { return type == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits); }

// The values as `type` holds them.
inline std::vector<float> Rounded(DType type, std::vector<float> values) {
  if (type == DType::kF32) return values;
  for (float& value : values) value = FromBits16(type, ToBits16(type, value));
  return values;
}

// Relative error of one rounding to `type`, and of f32 sums.
inline double ToleranceOf(DType type) { return type == DType::kF32 ? 1e-5 : type == DType::kF16 ? 1.0e-3 : 8e-3; }

// [rows][cols] in device memory with `padding` elements between rows, which no kernel may change.
class DeviceMatrix {
 public:
  DeviceMatrix(DType type, int64_t rows, int64_t cols, int64_t padding = 0)
      : type_(type), rows_(rows), cols_(cols), stride_(cols + padding), bytes_(rows * stride_ * SizeOf(type)) {}
  DeviceMatrix(DType type, int64_t rows, int64_t cols, const std::vector<float>& values, int64_t padding = 0)
      : DeviceMatrix(type, rows, cols, padding) {
    std::vector<unsigned char> bytes(bytes_.size(), 0xff);
    for (int64_t i = 0; i < rows * cols; ++i) {
      unsigned char* to = bytes.data() + (i / cols * stride_ + i % cols) * SizeOf(type);
      if (type == DType::kF32) {
        std::memcpy(to, &values[i], 4);
      } else {
        const uint16_t bits = ToBits16(type, values[i]);
        std::memcpy(to, &bits, 2);
      }
    }
    bytes_.Upload(bytes);
  }

  cuda::DeviceTensor view() { return {bytes_.data(), type_, stride_}; }
  // As f32. Fails if the padding was written.
  std::vector<float> Download() const {
    const std::vector<unsigned char> bytes = bytes_.Download();
    std::vector<float> values(rows_ * cols_);
    bool padding_intact = true;
    for (int64_t i = 0; i < rows_ * stride_; ++i) {
      const unsigned char* from = bytes.data() + i * SizeOf(type_);
      if (i % stride_ >= cols_) {
        padding_intact = padding_intact && std::all_of(from, from + SizeOf(type_), [](int b) { return b == 0xff; });
        continue;
      }
      float& value = values[i / stride_ * cols_ + i % stride_];
      uint16_t bits;
      if (type_ == DType::kF32) {
        std::memcpy(&value, from, 4);
      } else {
        std::memcpy(&bits, from, 2);
        value = FromBits16(type_, bits);
      }
    }
    EXPECT_TRUE(padding_intact);
    return values;
  }

 private:
  DType type_;
  int64_t rows_, cols_, stride_;
  simt::DeviceArray<unsigned char> bytes_;
};

class KernelTest : public simt::SimtTest {
 protected:
  Ops& reference() {
    if (backend_ == nullptr) backend_ = *CreateBackend({.kind = DeviceKind::kReference, .num_threads = 1});
    return backend_->ops();
  }
  // |actual - expected| <= tolerance * (1 + |expected|) for all; NaN nowhere.
  static void ExpectNear(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_LE(std::abs(double{actual[i]} - expected[i]), tolerance * (1 + std::abs(double{expected[i]})))
          << "at " << i << ": " << actual[i] << ", expected " << expected[i];
    }
  }

 private:
  std::unique_ptr<Backend> backend_;
};

}  // namespace quire::testing
