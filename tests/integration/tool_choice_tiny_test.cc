// tool_choice over HTTP with real arithmetic and random weights: whatever such a model would say, a required call is
// one, and its arguments are what the tool's schema allows.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/engine.h"
#include "tests/server/chat_replies.h"
#include "tests/server/http_chat_server.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

using ::nlohmann::json;

constexpr char kRequest[] = R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 400,
  "temperature": 1, "n": 3, "tools": [
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "additionalProperties": false}}},
  {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "required": ["at", "to"],
    "properties": {"at": {"enum": ["here", "t\"here"]}, "n": {"type": "integer", "minimum": -5, "maximum": 120},
                   "all": {"type": ["boolean", "null"]}, "when": {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"},
                   "to": {"type": "array", "items": {"$ref": "#/$defs/step"}, "maxItems": 3}},
    "additionalProperties": false, "$defs": {"step": {"const": "up"}}}}}]})";

bool IsTime(const json& value) {
  if (!value.is_string() || value.get<std::string>().size() != 5) return false;
  const auto text = value.get<std::string>();
  for (const size_t i : {0, 1, 3, 4}) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  return text[2] == ':';
}

// By hand: what the schemas above say.
bool IsValid(const std::string& name, const json& arguments) {
  if (!arguments.is_object()) return false;
  if (name == "now") return arguments.empty();
  if (name != "find" || !arguments.contains("at") || !arguments.contains("to")) return false;
  for (const auto& [key, value] : arguments.items()) {
    const bool fits = key == "at"     ? value == "here" || value == "t\"here"
                      : key == "n"    ? value.is_number_integer() && value >= -5 && value <= 120
                      : key == "all"  ? value.is_boolean() || value.is_null()
                      : key == "when" ? IsTime(value)
                      : key == "to"
                          ? value.is_array() && value.size() <= 3 &&
                                std::all_of(value.begin(), value.end(), [](const json& step) { return step == "up"; })
                          : false;
    if (!fits) return false;
  }
  return true;
}

class ToolChoiceTinyTest : public ::testing::TestWithParam<ToolSyntax> {
 protected:
  ToolChoiceTinyTest() : tokenizer_({"{\"", "\": ", "\", \"", "name", "find", "]}", "ere", "[TOOL_CALLS]"}) {
    tokenizer_.first_special_piece = tokenizer_.vocab_size() - 1;
  }
  void SetUp() override {
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    EngineOptions options;
    options.model_path = *model;
    options.random_weights = true;
    options.seed = 1;
    options.num_threads = 1;
    options.max_model_len = 512;
    options.block_size = 8;
    options.num_kv_blocks = 1000;
    engine_ = *CreateEngine(options);
    engine_->Start();
    ChatFormatOptions format;
    format.tool_syntax = GetParam();
    format.reasoning_syntax = ReasoningSyntax::kNone;  // such a model would never end it
    server_ = std::make_unique<ChatServer>(*engine_, tokenizer_, MakeChatFormat(tokenizer_, kChatTemplate, format));
  }

  // The choices of an answer as Sum has them, however it came.
  Streamed Ask(const json& fields, bool streamed) {
    json request = json::parse(kRequest);
    request.update(fields);
    request["stream"] = streamed;
    const HttpClient::Reply reply = server_->Post(request);
    if (streamed) return Sum(reply);
    EXPECT_EQ(reply.status, 200) << reply.body;
    Streamed whole;
    const json answer = reply.json();
    for (const json& choice : answer["choices"]) whole.choices[choice["index"]] = choice;
    return whole;
  }

  FakeTokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ChatServer> server_;
};

// The choices that ended by themselves.
int CheckCalls(const Streamed& answer, bool one_call, const std::string& name) {
  int stops = 0;
  for (const auto& [index, choice] : answer.choices) {
    SCOPED_TRACE(choice.dump());
    const json& message = choice["message"];
    const json calls = message.value("tool_calls", json::array());
    for (const json& call : calls) {
      const json& function = call["function"];
      EXPECT_TRUE(IsValid(function["name"], json::parse(function["arguments"].get<std::string>())));
      EXPECT_TRUE(name.empty() || function["name"] == name);
    }
    if (choice["finish_reason"] == "length") continue;
    ++stops;
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_GE(calls.size(), 1u);
    EXPECT_TRUE(!one_call || calls.size() == 1);
    const json content = message.value("content", json());
    EXPECT_TRUE(content.is_null() || content == "");
  }
  return stops;
}

TEST_P(ToolChoiceTinyTest, ARequiredCallIsOneWhateverTheModelWouldSay) {
  const json find = json::parse(R"({"type": "function", "function": {"name": "find"}})");
  int stops = 0, several = 0;
  for (int seed = 0; seed < 4; ++seed) {
    for (const bool streamed : {false, true}) {
      const Streamed any = Ask({{"tool_choice", "required"}, {"seed", seed}}, streamed);
      stops += CheckCalls(any, false, "");
      for (const auto& [index, choice] : any.choices)
        several += choice["message"].value("tool_calls", json::array()).size() > 1;
      stops += CheckCalls(Ask({{"tool_choice", "required"}, {"parallel_tool_calls", false}, {"seed", seed}}, streamed),
                          true, "");
      stops += CheckCalls(Ask({{"tool_choice", find}, {"seed", seed}}, streamed), true, "find");
    }
  }
  EXPECT_GE(stops, 36) << "of 72";
  EXPECT_GT(several, 0);
}

TEST_P(ToolChoiceTinyTest, ACutCallIsReportedAsLengthAndLosesNothing) {
  for (const bool streamed : {false, true}) {
    const Streamed answer = Ask({{"tool_choice", "required"}, {"max_tokens", 4}, {"seed", 1}}, streamed);
    ASSERT_EQ(answer.choices.size(), 3u);
    for (const auto& [index, choice] : answer.choices) {
      EXPECT_EQ(choice["finish_reason"], "length");
      EXPECT_FALSE(choice["message"].contains("tool_calls"));
      EXPECT_NE(choice["message"]["content"], "");
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<ToolSyntax>& tested) { return std::string(Name(tested.param)); }

INSTANTIATE_TEST_SUITE_P(All, ToolChoiceTinyTest,
                         ::testing::Values(ToolSyntax::kHermes, ToolSyntax::kLlamaJson, ToolSyntax::kMistral,
                                           ToolSyntax::kPythonic),
                         &NameOf);

}  // namespace
}  // namespace quire::testing
