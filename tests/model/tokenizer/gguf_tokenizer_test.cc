// Tokenizers from GGUF files, and back to a tokenizer.json.
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/gguf_builder.h"
#include "tests/model/tokenizer/reference_cases.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

std::string WriteFile(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "tokenizer_test.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBytes(const std::string& bytes) {
  return LoadTokenizer(WriteFile(bytes));
}

struct GgufTokenizer {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens = {"a", "b", "ab", "<s>", "<u>"};
  std::vector<int32_t> types = {1, 1, 1, 3, 4};
  std::vector<std::string> merges = {"a b"};
  uint32_t bos = 3;
};

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const GgufTokenizer& parts) {
  testing::GgufBuilder file;
  file.String("general.architecture", "llama").String("tokenizer.ggml.model", parts.model);
  if (!parts.pre.empty()) file.String("tokenizer.ggml.pre", parts.pre);
  file.Strings("tokenizer.ggml.tokens", parts.tokens).Ints("tokenizer.ggml.token_type", parts.types);
  file.Strings("tokenizer.ggml.merges", parts.merges).Uint("tokenizer.ggml.bos_token_id", parts.bos);
  file.Bool("tokenizer.ggml.add_bos_token", true);
  return LoadBytes(file.File());
}

TEST(LoadGgufTokenizerTest, ReadsOne) {
  const auto tokenizer = Load({});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(*(*tokenizer)->Encode("ab<u>a<s>", true), (std::vector<int32_t>{3, 2, 4, 0, 3}));
  EXPECT_EQ((*tokenizer)->Decode({3, 2, 4, 0}, /*skip_special_tokens=*/true), "ab<u>a");
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_TRUE((*tokenizer)->IsSpecial(3));
  EXPECT_FALSE((*tokenizer)->IsSpecial(4));
}

TEST(LoadGgufTokenizerTest, RefusesWhatIsWrong) {
  const auto expect = [](const GgufTokenizer& parts, absl::StatusCode code, const std::string& part) {
    const auto tokenizer = Load(parts);
    EXPECT_EQ(tokenizer.status().code(), code) << tokenizer.status() << " wanted " << part;
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr(part));
    EXPECT_THAT(std::string(tokenizer.status().message()), HasSubstr("tokenizer_test.gguf"));
  };
  const auto changed = [](auto change) {
    GgufTokenizer parts;
    change(&parts);
    return parts;
  };
  using G = GgufTokenizer;
  expect(changed([](G* g) { g->model = "t5"; }), kUnimplemented, "tokenizer.ggml.model 't5'");
  expect(changed([](G* g) { g->pre = "jais"; }), kUnimplemented, "tokenizer.ggml.pre 'jais'");
  expect(changed([](G* g) { g->pre = ""; }), kUnimplemented, "without tokenizer.ggml.pre");
  expect(changed([](G* g) { g->types.pop_back(); }), kInvalidArgument, "tokenizer.ggml.token_type has 4 elements");
  expect(changed([](G* g) { g->types[1] = 9; }), kInvalidArgument, "tokenizer.ggml.token_type[1] is 9");
  expect(changed([](G* g) { g->tokens[1] = "\xFF"; }), kInvalidArgument,
         "'tokenizer.ggml.tokens': string is not valid UTF-8");
  expect(changed([](G* g) { g->tokens[1] = "a", g->merges.clear(); }), kInvalidArgument,
         "token 'a' has the two ids 0 and 1");
  expect(changed([](G* g) { g->tokens[2] = "x"; }), kInvalidArgument, "needs the token 'ab'");
  expect(changed([](G* g) { g->merges[0] = "ab"; }), kInvalidArgument, "merge 0, 'ab'");
  expect(changed([](G* g) { g->bos = 5; }), kInvalidArgument, "tokenizer.ggml.bos_token_id is 5");
}

// SentencePiece's kind: scores, no merges.
struct ScoredTokenizer {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<0x0A>", "\xE2\x96\x81", "a", "b",
                                     "ab",    "ba",  "aba",  "xy"};
  std::vector<int32_t> types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1};
  std::vector<float> scores = {0, 0, 0, 0, -9, -9, -9, -2, -1, -3, -1};
  bool space_prefix = true;
  std::string model = "llama";
};

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const ScoredTokenizer& parts) {
  testing::GgufBuilder file;
  file.String("general.architecture", "llama").String("tokenizer.ggml.model", parts.model);
  file.Strings("tokenizer.ggml.tokens", parts.tokens).Ints("tokenizer.ggml.token_type", parts.types);
  file.Floats("tokenizer.ggml.scores", parts.scores).Uint("tokenizer.ggml.bos_token_id", 1);
  file.Bool("tokenizer.ggml.add_space_prefix", parts.space_prefix);
  return LoadBytes(file.File());
}

TEST(LoadScoredTokenizerTest, MergesTheHighestScoreFirst) {
  const auto tokenizer = Load(ScoredTokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto encode = [&](const char* text) { return *(*tokenizer)->Encode(text, /*add_special_tokens=*/false); };
  EXPECT_EQ(encode("aba"), (std::vector<int32_t>{4, 9}));  // a|ba, then aba
  EXPECT_EQ(encode("ab"), (std::vector<int32_t>{4, 7}));
  EXPECT_EQ(encode("xy"), (std::vector<int32_t>{4, 10}));         // of characters that are no tokens
  EXPECT_EQ(encode("xa\n"), (std::vector<int32_t>{4, 0, 5, 3}));  // <0x78> is missing too
  EXPECT_EQ(encode("a</s>b"), (std::vector<int32_t>{4, 5, 2, 4, 6}));
  EXPECT_EQ(*(*tokenizer)->Encode("a", true), (std::vector<int32_t>{1, 4, 5}));
  EXPECT_EQ((*tokenizer)->Decode({1, 4, 5, 4, 3, 6}, /*skip_special_tokens=*/true), "a \nb");
  EXPECT_EQ((*tokenizer)->Decode({0, 4, 5}, /*skip_special_tokens=*/false), "<unk> a");
}

TEST(LoadScoredTokenizerTest, RefusesWhatIsWrong) {
  ScoredTokenizer few;
  few.scores.pop_back();
  EXPECT_THAT(std::string(Load(few).status().message()), HasSubstr("tokenizer.ggml.scores has 10 elements"));
  ScoredTokenizer infinite;
  infinite.scores[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(std::string(Load(infinite).status().message()), HasSubstr("tokenizer.ggml.scores[5] is not finite"));
  for (const char* model : {"t5", "bert", "rwkv"}) {
    ScoredTokenizer other;
    other.model = model;
    EXPECT_EQ(Load(other).status().code(), kUnimplemented);
  }
}

struct GgufVariant {
  const char* name;
  const char* pre;
};

class GgufVariantTest : public ::testing::TestWithParam<GgufVariant> {};

// The same vocabulary as tokenizer.json and as GGUF gives the same ids, but for what only one of them can say.
TEST_P(GgufVariantTest, AgreesOnEveryCommittedCase) {
  const std::string base = testing::SourcePath(std::string("tests/data/tokenizers/") + GetParam().name);
  const std::string path = WriteFile(testing::GgufOfTokenizerJson(base + "/tokenizer.json", GetParam().pre));
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_GE(testing::CheckEncodeCases(**tokenizer, base + ".jsonl"), 60);
  EXPECT_GE(testing::CheckStreamCases(**tokenizer, base + ".stream.jsonl"), 40);
  const auto exported = ExportTokenizerJson(path);
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto again = LoadTokenizerJson(*exported);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GE(testing::CheckEncodeCases(**again, base + ".jsonl"), 60);
}

INSTANTIATE_TEST_SUITE_P(All, GgufVariantTest,
                         ::testing::Values(GgufVariant{"smollm2", "smollm"}, GgufVariant{"llama3_1", "llama-bpe"},
                                           GgufVariant{"qwen3", "qwen2"}, GgufVariant{"mistral_v1", ""},
                                           GgufVariant{"gemma3", ""}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace quire
