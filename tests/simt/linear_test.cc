// Linear layers and embedding over packed weights against kernels/reference.
#include "kernels/cuda/linear.cuh"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/weight_packing.h"
#include "tests/kernels/random_weight.h"
#include "tests/simt/kernel_test.h"

namespace quire::cuda {
namespace {

using simt::DeviceArray;
using testing::DeviceMatrix;
using testing::MakeRandomWeight;
using testing::RandomValues;
using testing::RandomWeight;
using testing::Rounded;

// Packed parts on the device.
class Packed {
 public:
  explicit Packed(absl::Span<const WeightView> parts) : host_(PackParts(parts)) {
    for (const HostWeight& weight : host_) {
      memory_.push_back(std::make_unique<DeviceArray<unsigned char>>(weight.bytes));
    }
  }
  size_t size() const { return host_.size(); }
  int32_t first_row(size_t i) const { return host_[i].first_row; }
  DeviceWeight operator[](size_t i) const { return host_[i].At(memory_[i]->data()); }

 private:
  std::vector<HostWeight> host_;
  std::vector<std::unique_ptr<DeviceArray<unsigned char>>> memory_;
};

struct Layer {
  int32_t rows = 0, cols = 0, outputs = 0;
  DType type = DType::kF32;  // of x
  std::vector<float> bias = {};
  std::vector<float> add_to = {};  // [rows, outputs]; empty: nothing
};

std::vector<float> RunLayer(const Layer& layer, const std::vector<float>& x, const Packed& packed) {
  DeviceMatrix in(layer.type, layer.rows, layer.cols, x, 8);
  std::vector<float> before = layer.add_to;
  before.resize(static_cast<size_t>(layer.rows) * layer.outputs, std::numeric_limits<float>::quiet_NaN());
  DeviceMatrix out(DType::kF32, layer.rows, layer.outputs, before, 3);
  const int32_t blocks = packed[0].blocks;
  const DeviceArray<unsigned char> prepared(PreparedBytes(layer.rows, blocks));
  const DeviceArray<float> scales(layer.rows), bias(layer.bias);
  EXPECT_EQ(LaunchPrepareRows({.x = in.view(),
                               .out = prepared.data(),
                               .scales = scales.data(),
                               .rows = layer.rows,
                               .cols = layer.cols,
                               .blocks = blocks},
                              nullptr),
            cudaSuccess);
  for (size_t i = 0; i < packed.size(); ++i) {
    EXPECT_EQ(LaunchLinear({.x = prepared.data(),
                            .x_scales = scales.data(),
                            .weight = packed[i],
                            .bias = layer.bias.empty() ? nullptr : bias.data() + packed.first_row(i),
                            .out = out.view(),
                            .rows = layer.rows,
                            .first_column = packed.first_row(i),
                            .add = !layer.add_to.empty()},
                           nullptr),
              cudaSuccess);
  }
  return out.Download();
}

class LinearTest : public testing::KernelTest {
 protected:
  std::vector<float> Expected(const Layer& layer, std::vector<float> x, absl::Span<const WeightView> parts) {
    auto weight = reference().PackWeight(parts);
    EXPECT_TRUE(weight.ok()) << weight.status();
    std::vector<float> out = layer.add_to;
    out.resize(static_cast<size_t>(layer.rows) * layer.outputs);
    const quire::LinearParams params = {.x = F32Matrix(x.data(), layer.rows, layer.cols),
                                        .weight = weight->get(),
                                        .bias = layer.bias.empty() ? nullptr : layer.bias.data(),
                                        .out = F32Matrix(out.data(), layer.rows, layer.outputs)};
    EXPECT_TRUE((layer.add_to.empty() ? reference().Linear(params) : reference().LinearAdd(params)).ok());
    return out;
  }
};

// Of one rounding of weights to 11 bits, over a sum whose results are as large as `expected`; f16 and bf16 weights are
// not rounded.
double ToleranceOf(WeightFormat format, const std::vector<float>& expected) {
  if (format == WeightFormat::kF16 || format == WeightFormat::kBf16) return 1e-5;
  double squares = 0;
  for (const float value : expected) squares += double{value} * value;
  return 1e-3 * (1 + std::sqrt(squares / static_cast<double>(expected.size())));
}

TEST_F(LinearTest, EveryFormat) {
  std::mt19937 random(1);
  for (const WeightFormat format : kAllWeightFormats) {
    for (const auto integers : {testing::Integers::kUniform, testing::Integers::kExtreme}) {
      const RandomWeight weight = MakeRandomWeight(format, 21, 256, random, integers);
      const std::vector<WeightView> parts = {weight.View()};
      const Packed packed(parts);
      for (const int32_t rows : {3, 18}) {
        SCOPED_TRACE(std::string(Info(format).name) + " " + std::to_string(rows) + " rows");
        const Layer layer{.rows = rows, .cols = 256, .outputs = 21};
        const std::vector<float> x = Rounded(DType::kF16, RandomValues(static_cast<size_t>(rows) * 256, 2));
        const std::vector<float> expected = Expected(layer, x, parts);
        ForEachSchedule([&] { ExpectNear(RunLayer(layer, x, packed), expected, ToleranceOf(format, expected)); });
      }
    }
  }
}

TEST_F(LinearTest, EverySize) {
  std::mt19937 random(3);
  for (const auto& [cols, outputs] : {std::pair<int32_t, int32_t>{1, 9}, {33, 1}, {136, 70}, {64, 8}}) {
    const RandomWeight weight = MakeRandomWeight(WeightFormat::kBf16, outputs, cols, random);
    const std::vector<WeightView> parts = {weight.View()};
    const Packed packed(parts);
    for (const int32_t rows : {1, 16, 17, 65}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(cols) + " x " + std::to_string(outputs));
      Layer layer{.rows = rows, .cols = cols, .outputs = outputs};
      const std::vector<float> x = Rounded(DType::kBf16, RandomValues(static_cast<size_t>(rows) * cols, 4));
      if (rows % 2 == 1) layer.bias = RandomValues(outputs, 5);
      if (rows > 16) layer.add_to = RandomValues(static_cast<size_t>(rows) * outputs, 6);
      const std::vector<float> expected = Expected(layer, x, parts);
      if (rows == 17) layer.type = DType::kBf16;
      ForEachSchedule([&] { ExpectNear(RunLayer(layer, x, packed), expected, 1e-5); });
    }
  }
}

TEST_F(LinearTest, PartsOfSeveralFormatsAndRowOrders) {
  std::mt19937 random(7);
  const RandomWeight q = MakeRandomWeight(WeightFormat::kQ4_K, 10, 256, random);
  const RandomWeight k = MakeRandomWeight(WeightFormat::kQ4_0, 5, 256, random);
  const RandomWeight v = MakeRandomWeight(WeightFormat::kQ6_K, 6, 256, random);
  const RandomWeight w = MakeRandomWeight(WeightFormat::kF16, 4, 256, random);
  std::vector<WeightView> parts = {q.View(), k.View(), v.View(), w.View()};
  const std::vector<int32_t> order = {3, 1, 0, 4, 2};
  parts[1].row_order = order;
  const Packed packed(parts);
  EXPECT_EQ(packed.size(), 3u);
  const Layer layer{.rows = 2, .cols = 256, .outputs = 25, .bias = RandomValues(25, 8)};
  const std::vector<float> x = RandomValues(2 * 256, 9), expected = Expected(layer, x, parts);
  ForEachSchedule([&] { ExpectNear(RunLayer(layer, x, packed), expected, 4e-3); });
}

// A row gives the same bits alone, among few and among many.
TEST_F(LinearTest, OneOrderOfSums) {
  std::mt19937 random(11);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ8_0, WeightFormat::kQ4_1}) {
    const int32_t cols = 288, outputs = 20, rows = 70;
    const RandomWeight weight = MakeRandomWeight(format, outputs, cols, random);
    const std::vector<WeightView> parts = {weight.View()};
    const Packed packed(parts);
    const std::vector<float> x = RandomValues(rows * cols, 12), bias = RandomValues(outputs, 13);
    const std::vector<float> all = RunLayer({.rows = rows, .cols = cols, .outputs = outputs, .bias = bias}, x, packed);
    for (const int32_t few : {1, 16, 17}) {
      const int32_t first = rows - few - 2;
      const std::vector<float> some(x.begin() + first * cols, x.begin() + (first + few) * cols);
      const std::vector<float> actual =
          RunLayer({.rows = few, .cols = cols, .outputs = outputs, .bias = bias}, some, packed);
      EXPECT_EQ(actual, std::vector<float>(all.begin() + first * outputs, all.begin() + (first + few) * outputs))
          << few;
    }
  }
}

// Neither rows nor weights leave the range of f16.
TEST_F(LinearTest, AnyMagnitude) {
  std::mt19937 random(17);
  RandomWeight weight = MakeRandomWeight(WeightFormat::kF32, 4, 64, random);
  auto* values = reinterpret_cast<float*>(weight.data.data());
  const float row_factors[] = {1e20f, 1e-20f, 0.0f, 1.0f};
  for (int i = 0; i < 4 * 64; ++i) values[i] *= row_factors[i / 64];
  const std::vector<WeightView> parts = {weight.View()};
  const Packed packed(parts);
  const Layer layer{.rows = 4, .cols = 64, .outputs = 4};
  std::vector<float> x = RandomValues(4 * 64, 18);
  const float factors[] = {1e15f, 1e-15f, 0.0f, 3e5f};
  for (int i = 0; i < 4 * 64; ++i) x[i] *= factors[i / 64];
  const std::vector<float> expected = Expected(layer, x, parts);
  ForEachSchedule([&] {
    const std::vector<float> actual = RunLayer(layer, x, packed);
    for (int i = 0; i < 16; ++i) {
      const double unit = double{factors[i / 4]} * row_factors[i % 4];
      EXPECT_NEAR(actual[i], expected[i], 2e-3 * unit) << i;
    }
  });
}

TEST_F(LinearTest, NotFiniteInputsReachTheirOwnRowOnly) {
  std::mt19937 random(19);
  const RandomWeight weight = MakeRandomWeight(WeightFormat::kQ8_0, 9, 64, random);
  const std::vector<WeightView> parts = {weight.View()};
  const Packed packed(parts);
  const Layer layer{.rows = 3, .cols = 64, .outputs = 9};
  std::vector<float> x = RandomValues(3 * 64, 20);
  const std::vector<float> expected = Expected(layer, x, parts);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[2 * 64 + 7] = std::numeric_limits<float>::infinity();
  ForEachSchedule([&] {
    const std::vector<float> actual = RunLayer(layer, x, packed);
    for (int i = 0; i < 9; ++i) {
      EXPECT_TRUE(std::isnan(actual[i]));
      EXPECT_NEAR(actual[9 + i], expected[9 + i], 1e-2);
      EXPECT_FALSE(std::isfinite(actual[18 + i]));
    }
  });
}

TEST_F(LinearTest, Embedding) {
  std::mt19937 random(23);
  const RandomWeight a = MakeRandomWeight(WeightFormat::kQ5_K, 11, 512, random);
  const RandomWeight b = MakeRandomWeight(WeightFormat::kQ4_K, 7, 512, random);
  const RandomWeight c = MakeRandomWeight(WeightFormat::kBf16, 5, 512, random);
  const std::vector<WeightView> parts = {a.View(), b.View(), c.View()};
  const Packed packed(parts);
  ASSERT_EQ(packed.size(), 3u);
  const std::vector<int32_t> ids = {22, 0, 10, 11, 17, 18, 0};
  std::vector<float> expected;
  for (const int32_t id : ids) {
    const RandomWeight& part = id < 11 ? a : id < 18 ? b : c;
    const int32_t row = id < 11 ? id : id < 18 ? id - 11 : id - 18;
    expected.insert(expected.end(), part.values.begin() + row * 512, part.values.begin() + (row + 1) * 512);
  }
  ForEachSchedule([&] {
    DeviceMatrix out(DType::kF32, 7, 512, 5);
    const DeviceArray<int32_t> device_ids(ids);
    for (size_t i = 0; i < packed.size(); ++i) {
      ASSERT_EQ(LaunchEmbedding({.ids = device_ids.data(),
                                 .table = packed[i],
                                 .first_id = packed.first_row(i),
                                 .out = out.view(),
                                 .tokens = 7,
                                 .cols = 512},
                                nullptr),
                cudaSuccess);
    }
    ExpectNear(out.Download(), expected, 5e-4);
  });
}

}  // namespace
}  // namespace quire::cuda
