// quire tokenizer: JSON lines in and out.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

TEST_F(TokenizerTest, ExportsATokenizerThatGivesTheSameIds) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "quire_export_", getpid());
  std::filesystem::remove_all(folder);
  const RunResult exported = RunCli({"tokenizer", "export", "--tokenizer", path_, folder});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.out, folder + "/tokenizer.json\n" + folder + "/tokenizer_config.json\n");
  EXPECT_EQ(testing::ReadFile(folder + "/tokenizer.json"), testing::ReadFile(path_ + "/tokenizer.json"));
  const std::string line = "{\"text\": \"Hello 123 w\u00f6rld\"}\n";
  const RunResult again = RunCli({"tokenizer", "encode", "--tokenizer", folder}, line);
  EXPECT_EQ(again.out, Run("encode", line).out);
  EXPECT_EQ(RunCli({"tokenizer", "export", "--tokenizer", path_, folder}).exit_code, 1);  // nothing is overwritten
  std::filesystem::remove_all(folder);
}

TEST(TokenizerExportTest, AGgufFileBecomesAFolder) {
  const auto model = testing::SmolLm2Path();
  if (!model) GTEST_SKIP() << "no SmolLM2 file";
  const std::string folder = absl::StrCat(::testing::TempDir(), "quire_export_gguf_", getpid());
  std::filesystem::remove_all(folder);
  const RunResult exported = RunCli({"tokenizer", "export", "--tokenizer", *model, folder});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const nlohmann::json config = testing::ReadJson(folder + "/tokenizer_config.json");
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
  EXPECT_TRUE(config["chat_template"].is_string());
  const std::string line = "{\"text\": \"<|im_start|>1 \\n2 \u00bd\"}\n";
  EXPECT_EQ(RunCli({"tokenizer", "encode", "--tokenizer", folder}, line).out,
            RunCli({"tokenizer", "encode", "--tokenizer", *model}, line).out);
  std::filesystem::remove_all(folder);
}

TEST(TokenizerErrorTest, AFileThatIsNoTokenizerEndsWith66) {
  EXPECT_EQ(RunCli({"tokenizer", "encode", "--tokenizer", "no/such/file"}).exit_code, 66);
  EXPECT_EQ(RunCli({"tokenizer", "decode", "--tokenizer", testing::SourcePath("README.md")}).exit_code, 66);
}

TEST(RenderTest, RendersTemplatesLineByLine) {
  const RunResult result = RunCli(
      {"tokenizer", "render"},
      R"({"template": "{{ messages[0].content }}{{ x }}{{ strftime_now('%Y') }}", "context": {"messages": [{"content": "a"}], "x": null}, "now": "2024-05-06T07:08:09"})"
      "\n"
      R"({"template": "{{ raise_exception('no') }}", "context": {}})"
      "\n"
      R"({"template": "{% for m in messages %}{{ m.content }};{% endfor %}", "context": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "continue_final_message": true})"
      "\n"
      R"({"context": {"messages": []}})"
      "\n[]\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.Lines();
  ASSERT_EQ(lines.size(), 5u) << result.out;
  EXPECT_EQ(lines[0]["rendered"], "aNone2024");
  EXPECT_EQ(lines[1]["error"]["message"], "no");
  EXPECT_EQ(lines[2]["rendered"], "a;b");
  EXPECT_EQ(lines[3]["error"]["code"], "NOT_FOUND");
  EXPECT_EQ(lines[4]["error"]["code"], "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace quire::cli
