// quire tokenizer: JSON lines in and out.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cli_runner.h"
#include "tests/testing/ref_data.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

class TokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::SharedTokenizerPath("smollm2");
    if (!path) GTEST_SKIP() << "no tokenizer files of smollm2";
    path_ = *path;
  }
  RunResult Run(const std::string& direction, const std::string& input) {
    return RunCli({"tokenizer", direction, "--tokenizer", path_}, input);
  }

  std::string path_;
};

TEST_F(TokenizerTest, EncodesAndDecodesLineByLine) {
  const RunResult encoded =
      Run("encode", "{\"text\": \"Hello world\", \"add_special_tokens\": false}\n\n{\"text\":\"\"}\n");
  ASSERT_EQ(encoded.exit_code, 0) << encoded.err;
  const auto lines = encoded.Lines();
  ASSERT_EQ(lines.size(), 2u) << encoded.out;
  ASSERT_GE(lines[0]["ids"].size(), 2u);
  EXPECT_TRUE(lines[1]["ids"].empty());
  const RunResult decoded = Run("decode", lines[0].dump() + "\n");
  EXPECT_EQ(decoded.out, "{\"text\":\"Hello world\"}\n");
}

TEST_F(TokenizerTest, ABadLineIsAnsweredAndTheNextOnesToo) {
  const RunResult result = Run("encode",
                               "{\"text\": 5}\n"
                               "not json\n"
                               "[]\n"
                               "{\"text\": \"a\", \"add_special_tokens\": 1}\n"
                               "{\"text\": \"a\"}\n");
  EXPECT_EQ(result.exit_code, 0);
  const auto lines = result.Lines();
  ASSERT_EQ(lines.size(), 5u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i]["error"]["code"], "INVALID_ARGUMENT") << i;
    EXPECT_FALSE(lines[i]["error"]["message"].get<std::string>().empty());
  }
  EXPECT_TRUE(lines[4].contains("ids"));
  const auto decoded = Run("decode", "{\"ids\": [-1]}\n{\"ids\": [1.5]}\n{\"ids\": [99999999999]}\n{\"ids\": \"1\"}\n");
  for (const nlohmann::json& line : decoded.Lines()) EXPECT_TRUE(line.contains("error")) << line;
  EXPECT_EQ(decoded.Lines().size(), 4u);
}

TEST(TokenizerErrorTest, AFileThatIsNoTokenizerEndsWith66) {
  EXPECT_EQ(RunCli({"tokenizer", "encode", "--tokenizer", "no/such/file"}).exit_code, 66);
  EXPECT_EQ(RunCli({"tokenizer", "decode", "--tokenizer", testing::SourcePath("README.md")}).exit_code, 66);
}

}  // namespace
}  // namespace quire::cli
