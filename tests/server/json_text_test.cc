#include "server/frontend/json_text.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

std::string ErrorOf(const std::string& text) { return std::string(ParseJsonText(text).status().message()); }

// {"0":0,"1":0, ...}
std::string ObjectOf(int num_members) {
  std::string text = "{";
  for (int i = 0; i < num_members; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"", i, "\":0");
  return text + "}";
}

TEST(JsonTextTest, TakesWhatJsonAllows) {
  EXPECT_EQ(*ParseJsonText(R"({"a": 1, "b": 2, "a": 3})"), nlohmann::ordered_json({{"a", 3}, {"b", 2}}));
  EXPECT_EQ(ParseJsonText(R"("\u0000")")->get<std::string>(), std::string(1, '\0'));
  EXPECT_EQ(ParseJsonText(R"("\ud83d\ude00")")->get<std::string>(), "\xf0\x9f\x98\x80");
  EXPECT_EQ(ParseJsonText("-0")->get<int64_t>(), 0);
  EXPECT_EQ(ParseJsonText("1e-400")->get<double>(), 0);
  EXPECT_TRUE(ParseJsonText("18446744073709551616")->is_number_float());
}

TEST(JsonTextTest, RefusesWhatIsNone) {
  for (const char* const text : {"",
                                 "{",
                                 "]",
                                 "]]",
                                 "[}",
                                 "{]]]]",
                                 "[1] 2",
                                 "nul",
                                 "01",
                                 "+1",
                                 ".5",
                                 "NaN",
                                 "1e400",
                                 "-1e400",
                                 "'a'",
                                 "{a: 1}",
                                 "\"\n\"",
                                 R"("\ud800")",
                                 R"("\udc00\ud800")",
                                 R"("\ud800\u0041")",
                                 R"("\x41")",
                                 "\"\xff\"",
                                 "\"\xed\xa0\x80\""}) {
    EXPECT_EQ(ErrorOf(text), "is not JSON in UTF-8, or has a number that is too large") << text;
  }
  EXPECT_FALSE(ParseJsonText(std::string("1\0}", 3)).ok());
}

TEST(JsonTextTest, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(ParseJsonText(nested(100)).ok());
  EXPECT_EQ(ErrorOf(nested(101)), "nests deeper than 100 levels");
  EXPECT_EQ(ErrorOf(std::string(1 << 20, '[')), "nests deeper than 100 levels");
  EXPECT_TRUE(ParseJsonText("\"" + std::string(200, '[') + "\"").ok());
}

// Every name is compared with those before it: 43,000 in a body of 256 KiB took seconds.
TEST(JsonTextTest, MembersOfOneObjectAreBounded) {
  const std::string problem = "has objects of too many members: more than 8388608 pairs of members of one object";
  EXPECT_EQ(ParseJsonText(ObjectOf(4096))->size(), 4096u);
  EXPECT_EQ(ErrorOf(ObjectOf(4100)), problem);
  EXPECT_EQ(ErrorOf("[" + ObjectOf(3000) + "," + ObjectOf(3000) + "]"), problem);
  // Neither what is in other objects nor what is in strings.
  std::string many = "[{\":\":\"" + std::string(5000, ':') + "\"}";
  for (int i = 0; i < 5000; ++i) many += R"(,{"a":{"b":0},"c":0})";
  EXPECT_TRUE(ParseJsonText(many + "]").ok());
}

}  // namespace
}  // namespace quire
