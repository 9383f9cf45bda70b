// Offsets and cutting, beside what the committed cases say.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/byte_tokenizer.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Keep = EncodeOptions::Keep;
using Offsets = std::vector<TextRange>;

nlohmann::json WithBosAndEos() {
  nlohmann::json spec = testing::ByteTokenizerSpec();
  spec["post_processor"] = nlohmann::json::parse(R"({
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [259], "tokens": ["<s>"]}}})");
  return spec;
}

TEST(OffsetsTest, AreBytesOfTheTextAndWholeCharacters) {
  const auto tokenizer = testing::LoadSpec(WithBosAndEos());
  const auto encoding = tokenizer->EncodeWith("ab \xC3\xA9<s>", {.add_special_tokens = true, .with_offsets = true});
  ASSERT_TRUE(encoding.ok()) << encoding.status();
  EXPECT_EQ(encoding->ids, (std::vector<int32_t>{259, 256, ' ', 0xC3, 0xA9, 259, 259}));
  EXPECT_EQ(encoding->offsets, (Offsets{{0, 0}, {0, 2}, {2, 3}, {3, 5}, {3, 5}, {5, 8}, {0, 0}}));
}

TEST(OffsetsTest, AreLeftOutUnlessAskedFor) {
  const auto tokenizer = testing::LoadSpec(WithBosAndEos());
  EXPECT_TRUE(tokenizer->EncodeWith("ab", {})->offsets.empty());
}

TEST(TruncationTest, KeepsTheFirstOrTheLastAndTheSpecialTokens) {
  const auto tokenizer = testing::LoadSpec(WithBosAndEos());
  const auto encode = [&](int64_t max_tokens, Keep keep, bool special) {
    return tokenizer->EncodeWith(
        "cxyz", {.add_special_tokens = special, .with_offsets = true, .max_tokens = max_tokens, .keep = keep});
  };
  EXPECT_EQ(encode(4, Keep::kFirst, true)->ids, (std::vector<int32_t>{259, 'c', 'x', 259}));
  EXPECT_EQ(encode(4, Keep::kLast, true)->ids, (std::vector<int32_t>{259, 'y', 'z', 259}));
  EXPECT_EQ(encode(4, Keep::kLast, true)->offsets, (Offsets{{0, 0}, {2, 3}, {3, 4}, {0, 0}}));
  EXPECT_EQ(encode(6, Keep::kLast, true)->ids.size(), 6u);
  EXPECT_EQ(encode(2, Keep::kFirst, true)->ids, (std::vector<int32_t>{259, 259}));
  EXPECT_EQ(encode(1, Keep::kFirst, true).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(encode(0, Keep::kLast, false)->ids.empty());
  EXPECT_EQ(encode(3, Keep::kLast, false)->ids, (std::vector<int32_t>{'x', 'y', 'z'}));
}

// What a file says of truncation and padding is for training; a server must not cut prompts by it.
TEST(TruncationTest, IgnoresWhatTheFileSays) {
  nlohmann::json spec = testing::ByteTokenizerSpec();
  spec["truncation"] = {{"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}, {"direction", "Right"}};
  spec["padding"] = {{"strategy", {{"Fixed", 9}}}};
  EXPECT_EQ(testing::LoadSpec(spec)->Encode("xyz", true)->size(), 3u);
}

TEST(OffsetsTest, OfRandomTextAscendAndChangeNoId) {
  for (const char* name : {"qwen3", "mistral_v1", "gemma3"}) {
    const auto tokenizer = LoadTokenizer(testing::SourcePath(std::string("tests/data/tokenizers/") + name));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<std::string> parts = {"a",         "the ",         " ",  "\n",  "\xC3\xA9",
                                            "e\xCC\x81", "\xE4\xBD\xA0", "12", "</s>"};
    std::mt19937 random(11);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (uint32_t n = random() % 20; n > 0; --n) text += parts[random() % parts.size()];
      const auto encoding = (*tokenizer)->EncodeWith(text, {.add_special_tokens = false, .with_offsets = true});
      ASSERT_TRUE(encoding.ok()) << encoding.status();
      ASSERT_EQ(encoding->ids, *(*tokenizer)->Encode(text, false));
      ASSERT_EQ(encoding->offsets.size(), encoding->ids.size());
      size_t last = 0;
      for (const TextRange& range : encoding->offsets) {
        ASSERT_LE(last, range.begin) << text;
        ASSERT_LE(range.begin, range.end) << text;
        ASSERT_LE(range.end, text.size()) << text;
        last = range.begin;
      }
    }
  }
}

}  // namespace
}  // namespace quire
