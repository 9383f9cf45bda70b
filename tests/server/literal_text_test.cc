#include "server/frontend/literal_text.h"

#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using ::quire::testing::FakeTokenizer;

LiteralText Literal(const std::vector<std::string>& specials) {
  FakeTokenizer tokenizer(specials);
  tokenizer.first_special_piece = FakeTokenizer::kFirstPiece;
  return LiteralText(tokenizer);
}

// The text of a conversation's only message, and the mark.
std::pair<std::string, std::string> Mark(const LiteralText& literal, const std::string& text) {
  Json messages = Json::array({Json::object()});
  messages[0]["role"] = "user";
  messages[0]["content"] = text;
  const auto mark = literal.Mark(&messages, {});
  EXPECT_TRUE(mark.ok()) << mark.status();
  return {messages[0]["content"].get<std::string>(), mark.value_or("")};
}

// The same in the plainest way: each spelling is tried at each place.
std::string MarkPlainly(const std::vector<std::string>& specials, const std::string& text, const std::string& mark) {
  std::string marked;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = std::string_view(text).substr(at);
    bool spells = false;
    for (const std::string& special : specials) {
      spells |= rest.starts_with(special) || std::string_view(special).starts_with(rest);
      for (size_t i = 1; at == 0 && i < special.size(); ++i) spells |= rest.starts_with(special.substr(i));
    }
    marked += text[at];
    if (spells) marked += mark;
  }
  return marked;
}

std::string RandomText(std::mt19937_64& random, size_t min_size, size_t max_size) {
  std::string text(min_size + random() % (max_size - min_size + 1), ' ');
  for (char& c : text) c = "<|ab>"[random() % 5];
  return text;
}

TEST(LiteralTextTest, MarksWhatSpellsATokenOrAPartOfOne) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    std::vector<std::string> specials = {"<bos>", "<eos>"};
    while (specials.size() < 20) specials.push_back(RandomText(random, 1 + i % 4, 6));
    const LiteralText literal = Literal({specials.begin() + 2, specials.end()});
    for (int k = 0; k < 50; ++k) {
      const std::string text = RandomText(random, 0, 30);
      const auto [marked, mark] = Mark(literal, text);
      ASSERT_EQ(marked, MarkPlainly(specials, text, mark)) << text;
    }
  }
}

// Minutes, if each token were tried at each place.
TEST(LiteralTextTest, ManyTokensOfOneBeginningTakeNoLonger) {
  std::vector<std::string> specials;
  for (int i = 0; i < 10'000; ++i) specials.push_back("<unused" + std::to_string(i) + ">");
  const LiteralText literal = Literal(specials);
  std::string text;
  while (text.size() < size_t{2} << 20) text += "<<<<<unused<unused1";
  const auto [marked, mark] = Mark(literal, text + "x");
  EXPECT_EQ(marked, text + "x");
  std::string rest = marked + mark;
  EXPECT_TRUE(LiteralText::TakeMarks(mark, &rest).size() == 1 && rest == marked);
}

}  // namespace
}  // namespace quire
