// Every reference case of the real tokenizers: ids, decoded text and streamed pieces, exact.
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/reference_cases.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

class TokenizerReferenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerReferenceTest, AgreesOnEveryCase) {
  const std::string name = GetParam();
  const auto path = testing::SharedTokenizerPath(name);
  if (!path) GTEST_SKIP() << "no ../shared/tokenizers/" << name;
  const auto cases = testing::RefPath("tokenizers/" + name + ".jsonl");
  const auto streams = testing::RefPath("tokenizers/" + name + ".stream.jsonl");
  if (!cases || !streams) GTEST_SKIP() << "no reference cases of " << name;
  const auto tokenizer = LoadTokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_GE(testing::CheckEncodeCases(**tokenizer, *cases), 600);
  EXPECT_GE(testing::CheckStreamCases(**tokenizer, *streams), 40);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerReferenceTest,
                         ::testing::Values("smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(TokenizerGgufTest, SmolLm2FromItsModelFileAgreesWithTheTokenizerJson) {
  const auto model = testing::SmolLm2Path();
  if (!model) GTEST_SKIP() << "no SmolLM2 model file";
  const auto cases = testing::RefPath("tokenizers/smollm2.jsonl");
  const auto streams = testing::RefPath("tokenizers/smollm2.stream.jsonl");
  if (!cases || !streams) GTEST_SKIP() << "no reference cases of smollm2";
  const auto tokenizer = LoadTokenizer(*model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_GE(testing::CheckEncodeCases(**tokenizer, *cases), 600);
  EXPECT_GE(testing::CheckStreamCases(**tokenizer, *streams), 40);
}

class TinyGgufTokenizerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyGgufTokenizerTest, AgreesOnItsCases) {
  const std::string name = GetParam();
  const auto file = testing::RefPath("gguf/" + name + ".gguf");
  const auto expected = testing::RefPath("gguf/" + name + ".expected.json");
  if (!file || !expected) GTEST_SKIP() << "no ref/gguf/" << name;
  const auto tokenizer = LoadTokenizer(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto cases = testing::ReadJson(*expected).at("tokenizer_cases");
  EXPECT_GE(cases.size(), 4u);
  for (const auto& row : cases) {
    const auto text = row.at("text").get<std::string>();
    const auto ids = (*tokenizer)->Encode(text, /*add_special_tokens=*/false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, row.at("ids").get<std::vector<int32_t>>()) << text;
    EXPECT_EQ((*tokenizer)->Decode(*ids, /*skip_special_tokens=*/false), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TinyGgufTokenizerTest,
                         ::testing::Values("tiny_llama_mix", "tiny_llama3_ropefreqs_f16", "tiny_qwen2_q5"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace quire
