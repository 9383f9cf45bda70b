// What needs nothing but the repository: reduced real tokenizers with cases of every category and all streams, and
// small made-up ones for each component and option.
#include <string>

#include "gtest/gtest.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/model/tokenizer/reference_cases.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

class ReducedTokenizerTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ReducedTokenizerTest, AgreesOnEveryCommittedCase) {
  const std::string base = testing::SourcePath(std::string("tests/data/tokenizers/") + GetParam());
  const auto tokenizer = LoadTokenizer(base);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_GE(testing::CheckEncodeCases(**tokenizer, base + ".jsonl"), 60);
  EXPECT_GE(testing::CheckStreamCases(**tokenizer, base + ".stream.jsonl"), 40);
}

INSTANTIATE_TEST_SUITE_P(All, ReducedTokenizerTest,
                         ::testing::Values("smollm2", "llama3_1", "qwen3", "mistral_v1", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(ComponentsTest, AgreeWithTheReference) {
  int checked = 0;
  for (const auto& row : testing::ReadJsonLines(testing::SourcePath("tests/data/tokenizers/components.jsonl"))) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    const auto tokenizer = LoadTokenizerJson(row.at("tokenizer").dump());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const auto& each : row.at("cases")) {
      testing::CheckEncodeCase(**tokenizer, each);
      ++checked;
    }
  }
  EXPECT_GE(checked, 6000);
}

}  // namespace
}  // namespace quire
