#include "kernels/dequantize.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "tests/kernels/random_weight.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

// Equal bits; any NaN equals any other.
bool SameFloat(float a, float b) { return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0; }

TEST(DequantizeTest, AgreesWithGgmlOnEveryReferenceRow) {
  const auto path = testing::RefPath("gguf/dequant.json");
  if (!path) GTEST_SKIP() << "no gguf/dequant.json in the oracle data";
  int rows = 0;
  const nlohmann::json oracle = testing::ReadJson(*path);
  for (const auto& type : oracle["types"]) {
    for (WeightFormat format : kAllWeightFormats) {
      if (type["type"] != std::string(Info(format).name)) continue;
      for (const auto& row : type["rows"]) {
        const std::string raw = absl::HexStringToBytes(row["raw_hex"].get<std::string>());
        const std::string want = absl::HexStringToBytes(row["values_f32le_hex"].get<std::string>());
        const int64_t n = type["row_values"];
        ASSERT_EQ(static_cast<int64_t>(raw.size()), RowBytes(format, n));
        ASSERT_EQ(want.size(), n * sizeof(float));
        std::vector<float> expected(n), got(n);
        std::memcpy(expected.data(), want.data(), want.size());
        DequantizeRow(format, reinterpret_cast<const std::byte*>(raw.data()), got.data(), n);
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_TRUE(SameFloat(got[i], expected[i]))
              << Info(format).name << " value " << i << ": " << got[i] << ", not " << expected[i];
        }
        ++rows;
      }
    }
  }
  EXPECT_EQ(rows, 2 * static_cast<int>(std::size(kAllWeightFormats)));
}

TEST(DequantizeTest, ReadsBackWhatWasWritten) {
  std::mt19937 random(1);
  for (WeightFormat format : kAllWeightFormats) {
    const testing::RandomWeight w = testing::MakeRandomWeight(format, 3, 512, random);
    std::vector<float> got(512);
    for (int64_t r = 0; r < w.rows; ++r) {
      DequantizeRow(format, w.data.data() + r * RowBytes(format, w.cols), got.data(), w.cols);
      for (int64_t k = 0; k < w.cols; ++k) {
        ASSERT_TRUE(SameFloat(got[k], w.values[r * w.cols + k])) << Info(format).name << " row " << r << " value " << k;
      }
    }
  }
}

}  // namespace
}  // namespace quire
