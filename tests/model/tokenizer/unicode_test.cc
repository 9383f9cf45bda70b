// UTF-8, NFC and the regular expressions against what Unicode and the reference say.
#include "model/tokenizer/unicode.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/regex_dialect.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

std::string Text(std::initializer_list<char32_t> points) {
  std::string text;
  for (const char32_t c : points) utf8::Append(c, &text);
  return text;
}

std::string NormalizeNfc(std::string_view text) {
  AlignedText aligned(text, 0, /*tracked=*/false);
  NormalizeUnicode(NormalForm::kNfc, &aligned);
  return aligned.text();
}

std::string Lossy(std::string_view bytes) {
  std::string text;
  utf8::AppendLossy(bytes, &text);
  return text;
}

TEST(Utf8Test, EveryCodePointIsWrittenAndReadBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    const std::string text = Text({c});
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(utf8::IsValid(text), !surrogate) << static_cast<uint32_t>(c);
    size_t offset = 0;
    ASSERT_EQ(utf8::Decode(text, &offset), c);
    ASSERT_EQ(offset, text.size());
  }
}

// The Unicode Standard, tables 3-8 to 3-11.
TEST(Utf8Test, EachMaximalSubpartIsOneReplacement) {
  const std::string r(utf8::kReplacement);
  EXPECT_EQ(Lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(Lossy("12345678\xC3\xA9\xC3"), "12345678\xC3\xA9" + r);
}

TEST(NfcTest, ComposesAndOrders) {
  EXPECT_EQ(NormalizeNfc(Text({'e', 0x301})), Text({0xE9}));
  EXPECT_EQ(NormalizeNfc(Text({'a', 0x301, 0x323})), Text({0x1EA1, 0x301}));
  EXPECT_EQ(NormalizeNfc(Text({0x1100, 0x1161, 0x11A8})), Text({0xAC01}));
  EXPECT_EQ(NormalizeNfc(Text({0xAC00, 0x11A8})), Text({0xAC01}));
  EXPECT_EQ(NormalizeNfc(Text({0x212B})), Text({0xC5}));         // a singleton
  EXPECT_EQ(NormalizeNfc(Text({0x958})), Text({0x915, 0x93C}));  // excluded from composition
  EXPECT_EQ(NormalizeNfc(Text({'a', 0x315, 0x300})), Text({0xE0, 0x315}));
  EXPECT_EQ(NormalizeNfc(Text({'a', 0x300, 0x300})), Text({0xE0, 0x300}));  // the second is blocked
  EXPECT_EQ(NormalizeNfc(Text({0x301, 'a'})), Text({0x301, 'a'}));
  EXPECT_EQ(NormalizeNfc(""), "");
}

TEST(NfcTest, KnowsNothingYoungerThanUnicode9) {
  EXPECT_EQ(NormalizeNfc(Text({0x11935, 0x11930})), Text({0x11935, 0x11930}));
  EXPECT_EQ(NormalizeNfc(Text({'a', 0x1ABF, 0x323})), Text({'a', 0x1ABF, 0x323}));
  EXPECT_EQ(NormalizeNfc(Text({0x11131, 0x11127})), Text({0x1112E}));  // Unicode 6.1, above the BMP
}

std::set<char32_t> Matches(const std::string& pattern) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::set<char32_t> found;
  std::vector<TextRange> matches;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = Text({c});
    std::string storage;
    const std::string_view known = WithKnownCategories(text, &storage);
    EXPECT_EQ(known.size(), text.size());
    matches.clear();
    EXPECT_TRUE((*regex)->FindAll(known, &matches).ok());
    if (!matches.empty()) found.insert(c);
  }
  return found;
}

TEST(RegexTest, WhiteSpaceIsUnicodesWhiteSpace) {
  std::set<char32_t> want;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (IsWhiteSpace(c)) want.insert(c);
  }
  EXPECT_EQ(want.size(), 25u);
  EXPECT_EQ(Matches(R"(\s)"), want);
}

// Counted in Unicode 16's DerivedGeneralCategory.txt.
TEST(RegexTest, CategoriesAreThoseOfUnicode16) {
  EXPECT_EQ(Matches(R"(\p{L})").size(), 2258u + 404 + 136477 + 31 + 1858);
  EXPECT_EQ(Matches(R"(\p{Lu})").size(), 1858u);
  EXPECT_EQ(Matches(R"(\p{Mn})").size(), 2020u);
  EXPECT_EQ(Matches(R"(\p{N})").size(), 760u + 236 + 915);
  EXPECT_EQ(Matches(R"(\p{So})").size(), 7376u);
}

TEST(RegexTest, AnEmptyMatchNeverFollowsAMatch) {
  const auto regex = Regex::Compile("x*");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> matches;
  ASSERT_TRUE((*regex)->FindAll("axxb", &matches).ok());
  std::vector<std::pair<size_t, size_t>> got;
  for (const auto& match : matches) got.emplace_back(match.begin, match.end);
  EXPECT_EQ(got, (std::vector<std::pair<size_t, size_t>>{{0, 0}, {1, 3}, {4, 4}}));
}

TEST(RegexTest, GivingUpIsAnErrorNotAnAnswer) {
  const auto regex = Regex::Compile("(?:a|aa)+c");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> matches;
  std::string text(80, 'a');
  text += "bc";
  EXPECT_EQ((*regex)->FindAll(text, &matches).code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegexTest, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern : {R"(\w+)", R"(\bx)", R"(\h)", R"(\p{Han})", R"(\pL)", "[a[b]]", "[a&&b]", "(?m:.)",
                              "(?<n>x)", "(*UCP)x", "a{,3}", "a{2}+", R"(\R)", R"(\1)"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kUnimplemented) << pattern;
  }
  for (const char* pattern : {"(", "[a", "a)", R"(\)", "a**?+{", "\xFF"}) {
    EXPECT_EQ(Regex::Compile(pattern).status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
  EXPECT_TRUE(Regex::Compile(R"([^\r\n\p{L}\p{^N}\[\]&-]+(?i:'s)(?=x)(?!y)(?<=z)(?<!w)(?>v)\{\x{3042}\P{Lu})").ok());
}

TEST(WordCharacterTest, IsUnicodesWord) {
  for (const char32_t c : {U'a', U'_', U'9', U'\u00E9', U'\u0301', U'\u2163', U'\u24B6', U'\u200D', U'\u6771'}) {
    EXPECT_TRUE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U' ', U'-', U'\u00BD', U'\u20AC', U'\u200B', U'\U0001F600'}) {
    EXPECT_FALSE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace quire
