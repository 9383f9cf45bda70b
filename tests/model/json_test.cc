#include "model/json.h"

#include "gtest/gtest.h"

namespace quire::testing {
namespace {

TEST(JsonTest, KeepsWhatIsThere) {
  const auto value = ParseJson(R"({"a": [1, -2, 2.5, "x", true, null, {}], "b": {"c": []}})", "test");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, nlohmann::json::parse(R"({"a": [1, -2, 2.5, "x", true, null, {}], "b": {"c": []}})"));
}

TEST(JsonTest, RefusesBrokenText) {
  for (const char* text :
       {"", "{", "{\"a\": 1,}", "{} x", "NaN", "1e400", "{\"a\": 1, \"a\": 2}", "\"\xff\"", "[1] [2]"}) {
    EXPECT_EQ(ParseJson(text, "test").status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseJson(std::string_view("{}\0x", 4), "test").ok());
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "test").ok());
  EXPECT_FALSE(ParseJson(std::string(65, '[') + std::string(65, ']'), "test").ok());

  std::string many = "[0";
  for (int i = 0; i < 2'000'000; ++i) many += ",0";
  EXPECT_NE(ParseJson(many + "]", "test").status().message().find("2000000 values"), absl::string_view::npos);
}

TEST(JsonTest, FieldsAreCheckedForTypeAndRange) {
  const nlohmann::json object =
      nlohmann::json::parse(R"({"i": 5, "f": 1.5, "s": "x", "n": null, "big": 18446744073709551615})");
  const JsonFields fields(object, "where");
  EXPECT_EQ(*fields.Int("i", 5, 5), 5);
  EXPECT_EQ(std::string(fields.Int("i", 6, 9).status().message()), "where: i is 5, allowed are integers from 6 to 9");
  EXPECT_FALSE(fields.Int("f", 0, 9).ok());
  EXPECT_FALSE(fields.Int("big", INT64_MIN, INT64_MAX).ok());
  EXPECT_EQ(*fields.IntOr("n", 7, 0, 1), 7);
  EXPECT_EQ(*fields.Float("i", 0, 9), 5);
  EXPECT_FALSE(fields.Float("s", 0, 9).ok());
  EXPECT_FALSE(fields.Bool("i").ok());
  EXPECT_EQ(*fields.String("s"), "x");
  EXPECT_FALSE(fields.Has("n"));
}

}  // namespace
}  // namespace quire::testing
