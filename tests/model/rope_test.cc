#include "model/rope.h"

#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "model/config_hf.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

std::vector<float> FromHex(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The row as config.json would give it, in one of the two spellings.
nlohmann::json ConfigOf(const nlohmann::json& row, bool version5) {
  nlohmann::json rope = row.at("rope_parameters");
  if (version5) return {{"rope_parameters", rope}, {"rope_theta", nullptr}};
  nlohmann::json config = {{"rope_theta", rope.at("rope_theta")}};
  rope.erase("rope_theta");
  rope["type"] = rope.at("rope_type");
  rope.erase("rope_type");
  config["rope_scaling"] = rope;
  return config;
}

TEST(RopeTest, FrequenciesAndAttentionFactorsAreTheOracles) {
  const auto path = RefPath("numeric/rope.json");
  if (!path) GTEST_SKIP() << "no oracle data";
  const nlohmann::json file = ReadJson(*path);
  int rows = 0;
  for (const nlohmann::json& row : file.at("cases")) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    const auto max_positions = row.at("max_position_embeddings").get<int32_t>();
    const int64_t length =
        row.at("sequence_length").is_null() ? max_positions : row.at("sequence_length").get<int64_t>();
    for (bool version5 : {false, true}) {
      const auto rope = ParseHfRope(ConfigOf(row, version5), row.at("head_dim").get<int32_t>(), max_positions, "test");
      ASSERT_TRUE(rope.ok()) << rope.status();
      const RopeFrequencies got = ComputeRope(*rope, max_positions, length);
      const std::vector<float> want = FromHex(row.at("inv_freq_f32le_hex").get<std::string>());
      ASSERT_EQ(got.inv_freq.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.inv_freq[i] / want[i], 1, 1e-6) << i;
      EXPECT_NEAR(got.attention_factor, row.at("attention_factor").get<double>(), 1e-6);
    }
    ++rows;
  }
  EXPECT_GE(rows, 15);
}

TEST(RopeTest, DivisorsDivideTheFrequencies) {
  RopeConfig rope;
  rope.rotary_dim = 4;
  rope.freq_divisors = {1, 8};
  const RopeFrequencies got = ComputeRope(rope, 100, 100);
  EXPECT_EQ(got.inv_freq, (std::vector<float>{1, 0.01f / 8}));
}

TEST(RopeTest, RefusesWhatItDoesNotKnow) {
  const auto message = [](const nlohmann::json& config) {
    return std::string(ParseHfRope(config, 64, 4096, "test").status().message());
  };
  using nlohmann::json;
  EXPECT_NE(message(json::parse(R"({"rope_scaling": {"rope_type": "spiral", "factor": 2}})")).find("spiral"),
            std::string::npos);
  EXPECT_NE(message(json::parse(R"({"rope_scaling": {"type": "linear", "factor": 0}})")).find("factor"),
            std::string::npos);
  EXPECT_NE(message(json::parse(R"({"rope_scaling": {"factor": 4}})")).find("rope_type"), std::string::npos);
  EXPECT_NE(message(json::parse(R"({"rope_scaling": 4})")).find("rope_scaling"), std::string::npos);
  EXPECT_NE(message(json::parse(R"({"rope_theta": null})")).find("rope_theta"), std::string::npos);
  EXPECT_NE(message(json::parse(R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})"))
                .find("full_attention"),
            std::string::npos);
  EXPECT_NE(message(json::parse(R"({"partial_rotary_factor": 0.01})")).find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_EQ(message(json::parse("{}")), "");
}

}  // namespace
}  // namespace quire::testing
