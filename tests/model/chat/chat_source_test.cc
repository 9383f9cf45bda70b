#include "model/chat_source.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/model/gguf_builder.h"

namespace quire {
namespace {

using testing::GgufBuilder;
using testing::WriteTemporaryFile;

std::string Render(const std::string& path, bool with_tools = false) {
  const auto source = ReadChatTemplateSource(path);
  if (!source.ok()) return std::string(source.status().message());
  const auto form = ChatTemplate::Load(*source);
  if (!form.ok()) return std::string(form.status().message());
  ChatRequest request;
  request.messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "x"}])");
  if (with_tools) request.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  return form->Render(request).value_or("?");
}

// A folder with the files that a test puts there.
class ChatFolderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  const std::filesystem::path folder_ = std::filesystem::path(WriteTemporaryFile("tokenizer.json", "{}")).parent_path();
};

TEST_F(ChatFolderTest, AFileOfItsOwnWinsOverTheConfiguration) {
  EXPECT_FALSE(HasChatTemplate(*ReadChatTemplateSource(folder_)));
  Write("tokenizer_config.json", R"({"chat_template": "config{{ bos_token }}", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(Render(folder_), "config<s>");
  EXPECT_EQ(Render(folder_ / "tokenizer.json"), "config<s>") << "of the folder that the file is in";
  Write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(Render(folder_), "json");
  Write("chat_template.jinja", "file{{ bos_token }}");
  EXPECT_EQ(Render(folder_), "file<s>");
}

TEST_F(ChatFolderTest, RequestsWithToolsMayHaveATemplateOfTheirOwn) {
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  EXPECT_EQ(Render(folder_), "a");
  EXPECT_EQ(Render(folder_, /*with_tools=*/true), "b");
  Write("chat_template.jinja", "c");
  EXPECT_EQ(Render(folder_, /*with_tools=*/true), "c");
  Write("additional_chat_templates/tool_use.jinja", "d");
  EXPECT_EQ(Render(folder_), "c");
  EXPECT_EQ(Render(folder_, /*with_tools=*/true), "d");
}

TEST_F(ChatFolderTest, WhatIsWrongIsNamed) {
  Write("tokenizer_config.json", "{");
  EXPECT_NE(Render(folder_).find("tokenizer_config.json"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_NE(Render(folder_).find("line 1"), std::string::npos) << Render(folder_);
  Write("big.jinja", std::string((4 << 20) + 1, 'x'));
  EXPECT_EQ(ReadChatTemplateFile(folder_ / "big.jinja").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadChatTemplateFile(folder_ / "none.jinja").status().code(), absl::StatusCode::kNotFound);
}

TEST(ChatSourceTest, AGgufFileHasTemplatesAndNamesOfTokens) {
  const auto strings = [](const std::vector<std::string>& texts) {
    std::string value = GgufBuilder::Raw(uint32_t{8}) + GgufBuilder::Raw(static_cast<uint64_t>(texts.size()));
    for (const std::string& text : texts) value += GgufBuilder::Text(text);
    return value;
  };
  GgufBuilder builder;
  builder.String("general.architecture", "llama");
  builder.Add("tokenizer.ggml.tokens", 9, strings({"<unk>", "<s>", "</s>"}));
  builder.U32("tokenizer.ggml.bos_token_id", 1).U32("tokenizer.ggml.eos_token_id", 2);
  builder.U32("tokenizer.ggml.padding_token_id", 99);
  EXPECT_FALSE(HasChatTemplate(*ReadChatTemplateSource(WriteTemporaryFile("none.gguf", builder.Bytes()))));
  builder.String("tokenizer.chat_template", "{{ bos_token }}{{ eos_token }}{{ pad_token }}");
  EXPECT_EQ(Render(WriteTemporaryFile("one.gguf", builder.Bytes())), "<s></s>");
  builder.String("tokenizer.chat_template.tool_use", "tools{{ bos_token }}");
  const std::string path = WriteTemporaryFile("two.gguf", builder.Bytes());
  EXPECT_EQ(Render(path), "<s></s>");
  EXPECT_EQ(Render(path, /*with_tools=*/true), "tools<s>");
}

}  // namespace
}  // namespace quire
