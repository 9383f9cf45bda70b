#include "server/frontend/tool_choice.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/frontend/constraint_cache.h"
#include "server/frontend/errors.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using ::quire::testing::FakeTokenizer;

const char kTools[] = R"([
  {"type": "function", "function": {"name": "now"}},
  {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "required": ["at"],
    "properties": {"at": {"$ref": "#/$defs/place"}, "n": {"type": "integer"}}, "additionalProperties": false,
    "$defs": {"place": {"enum": ["here", "there"]}}}}}])";

ChatPrompt Prompt(const std::string& name, bool several, const std::string& tools = kTools) {
  ChatPrompt prompt;
  prompt.tools = Json::parse(tools);
  prompt.tool_choice = ToolChoice::kRequired;
  prompt.tool_name = name;
  prompt.parallel_tool_calls = several;
  return prompt;
}

class ToolChoiceTest : public ::testing::TestWithParam<ToolSyntax> {
 protected:
  // Whether the reply is allowed, to its end.
  bool Allows(const std::string& reply, const std::string& name, bool several,
              ReasoningSyntax reasoning = ReasoningSyntax::kNone) {
    ChatPrompt prompt = Prompt(name, several);
    prompt.allowed_tools = allowed_;
    auto wanted = RequireToolCall(prompt, GetParam());
    EXPECT_TRUE(wanted.ok()) << wanted.status();
    wanted->reasoning = ReasoningBefore(reasoning);
    const auto begin = cache_.Get(*wanted);
    EXPECT_TRUE(begin.ok()) << begin.status();
    if (!begin.ok()) return false;
    const auto sequence = (*begin)->Clone();
    for (const char c : reply) {
      if (!sequence->Accept(static_cast<unsigned char>(c)).ok()) return false;
    }
    return sequence->Accept(FakeTokenizer::kEos).ok();
  }
  static std::string AsPython(const std::string& arguments) {
    const Json object = Json::parse(arguments);
    std::string text = "(";
    for (const auto& [name, value] : object.items()) text += (text == "(" ? "" : ", ") + name + "=" + value.dump();
    return text + ")";
  }
  std::string Write(const std::vector<std::pair<std::string, std::string>>& calls) const {
    std::string reply = GetParam() == ToolSyntax::kMistral    ? "[TOOL_CALLS]["
                        : GetParam() == ToolSyntax::kPythonic ? "["
                                                              : "";
    for (const auto& [name, arguments] : calls) {
      const std::string json = "{\"name\": \"" + name + "\", \"";
      const bool first = &name == &calls[0].first;
      switch (GetParam()) {
        case ToolSyntax::kHermes:
          reply +=
              std::string(first ? "" : "\n") + "<tool_call>\n" + json + "arguments\": " + arguments + "}\n</tool_call>";
          break;
        case ToolSyntax::kLlamaJson:
          reply += std::string(first ? "" : "; ") + json + "parameters\": " + arguments + "}";
          break;
        case ToolSyntax::kMistral:
          reply += std::string(first ? "" : ", ") + json + "arguments\": " + arguments + "}";
          break;
        default:
          reply += std::string(first ? "" : ", ") + name + AsPython(arguments);
      }
    }
    return reply + (GetParam() == ToolSyntax::kMistral || GetParam() == ToolSyntax::kPythonic ? "]" : "");
  }
  static std::vector<ToolCall> Parsed(const std::string& reply, ReasoningSyntax reasoning = ReasoningSyntax::kNone) {
    ReplyParser parser(GetParam(), reasoning);
    std::vector<ToolCall> calls = parser.Feed(reply).calls;
    const ReplyDelta rest = parser.Finish();
    calls.insert(calls.end(), rest.calls.begin(), rest.calls.end());
    EXPECT_EQ(rest.content, "");
    return calls;
  }

  std::set<std::string> allowed_;  // empty: all
  FakeTokenizer tokenizer_;
  ConstraintCache cache_{tokenizer_, {FakeTokenizer::kEos}, 258};
};

const char kFound[] = R"({"at": "here", "n": 3})";

TEST_P(ToolChoiceTest, RequiredCallsAreThoseThatTheParserReads) {
  const std::string one = Write({{"find", kFound}}), both = Write({{"now", "{}"}, {"find", kFound}});
  EXPECT_TRUE(Allows(one, "", false));
  EXPECT_TRUE(Allows(one, "", true));
  EXPECT_FALSE(Allows(both, "", false));
  EXPECT_TRUE(Allows(both, "", true));
  EXPECT_FALSE(Allows("Hello", "", true));
  EXPECT_FALSE(Allows(one + "!", "", true));
  const std::vector<ToolCall> calls = Parsed(both);
  ASSERT_EQ(calls.size(), 2u) << both;
  EXPECT_EQ(calls[0].name, "now");
  EXPECT_EQ(Json::parse(calls[1].arguments), Json::parse(kFound));
}

TEST_P(ToolChoiceTest, ANamedToolIsCalledOnce) {
  EXPECT_TRUE(Allows(Write({{"find", kFound}}), "find", true));
  EXPECT_FALSE(Allows(Write({{"now", "{}"}}), "find", true));
  EXPECT_FALSE(Allows(Write({{"find", kFound}, {"find", kFound}}), "find", true));
}

TEST_P(ToolChoiceTest, OnlyAllowedToolsAreCalled) {
  allowed_ = {"find"};
  EXPECT_TRUE(Allows(Write({{"find", kFound}, {"find", kFound}}), "", true));
  EXPECT_FALSE(Allows(Write({{"now", "{}"}}), "", true));
  EXPECT_FALSE(Allows(Write({{"find", kFound}, {"now", "{}"}}), "", true));
}

TEST_P(ToolChoiceTest, ArgumentsAreThoseOfTheSchema) {
  EXPECT_TRUE(Allows(Write({{"find", R"({"at": "there"})"}}), "", false));
  EXPECT_FALSE(Allows(Write({{"find", R"({"at": "nowhere"})"}}), "", false));
  EXPECT_FALSE(Allows(Write({{"find", R"({"n": 3})"}}), "", false));
  EXPECT_FALSE(Allows(Write({{"find", R"({"at": "here", "more": 1})"}}), "", false));
}

TEST_P(ToolChoiceTest, ReasoningComesFirst) {
  const std::string call = Write({{"find", kFound}});
  EXPECT_TRUE(Allows("<think>\nwell\n</think>\n\n" + call, "", false, ReasoningSyntax::kThink));
  EXPECT_TRUE(Allows(call, "", false, ReasoningSyntax::kThink));
  EXPECT_TRUE(Allows("well</think>" + call, "", false, ReasoningSyntax::kThinkStarted));
  EXPECT_FALSE(Allows(call, "", false, ReasoningSyntax::kThinkStarted));
  EXPECT_EQ(Parsed("<think>\nwell\n</think>\n\n" + call, ReasoningSyntax::kThink).size(), 1u);
}

std::string NameOf(const ::testing::TestParamInfo<ToolSyntax>& tested) {
  constexpr const char* kNames[] = {"None", "Hermes", "LlamaJson", "Mistral", "Pythonic"};
  return kNames[static_cast<int>(tested.param)];
}

INSTANTIATE_TEST_SUITE_P(All, ToolChoiceTest,
                         ::testing::Values(ToolSyntax::kHermes, ToolSyntax::kLlamaJson, ToolSyntax::kMistral,
                                           ToolSyntax::kPythonic),
                         &NameOf);

// The mark is a special token, and nothing else will do; texts within calls have none.
TEST(ToolChoiceMarkTest, AMarkThatIsASpecialTokenIsThatToken) {
  FakeTokenizer tokenizer({"[TOOL_CALLS]", "</think>", "hello"});
  tokenizer.first_special_piece = FakeTokenizer::kFirstPiece;
  constexpr int32_t kMark = FakeTokenizer::kFirstPiece, kThinkEnd = kMark + 1;
  ConstraintCache cache(tokenizer, {FakeTokenizer::kEos}, 262);
  auto wanted = *RequireToolCall(Prompt("", false), ToolSyntax::kMistral);
  wanted.reasoning = ReasoningBefore(ReasoningSyntax::kThinkStarted);
  const auto sequence = (*cache.Get(wanted))->Clone();
  const auto accept = [&](const std::string& text) {
    for (const char c : text) ASSERT_TRUE(sequence->Accept(static_cast<unsigned char>(c)).ok()) << c << " of " << text;
  };
  accept("so </think");
  EXPECT_FALSE(sequence->Accept('>').ok()) << "the end of the reasoning is a token";
  EXPECT_FALSE(sequence->Accept(kMark).ok());
  ASSERT_TRUE(sequence->Accept(kThinkEnd).ok());
  EXPECT_FALSE(sequence->Accept('[').ok());
  ASSERT_TRUE(sequence->Accept(kMark).ok());
  accept(R"([{"name": "now", "arguments": {"a": ")");
  EXPECT_FALSE(sequence->Accept(kMark).ok());
  EXPECT_FALSE(sequence->Accept(FakeTokenizer::kBos).ok());
  accept(R"([TOOL_CALLS]"}}])");
  EXPECT_TRUE(sequence->Accept(FakeTokenizer::kEos).ok());
}

TEST(ToolChoiceErrorTest, NamesTheField) {
  const auto field = [](const ChatPrompt& prompt, ToolSyntax syntax = ToolSyntax::kHermes) {
    return FieldOf(RequireToolCall(prompt, syntax).status());
  };
  EXPECT_EQ(field(Prompt("other", true)), "tool_choice");
  EXPECT_EQ(field(Prompt("", true, "[]")), "tool_choice");
  EXPECT_EQ(field(Prompt("", true, "null")), "tool_choice");
  EXPECT_EQ(field(Prompt("", true), ToolSyntax::kNone), "tool_choice");
  EXPECT_EQ(field(Prompt("", true, R"([{"type": "function", "function": {"name": "a b"}}])"), ToolSyntax::kPythonic),
            "tools");
}

TEST(ToolChoiceErrorTest, WhatClientsWriteIsReadOrRefused) {
  const auto read = [](const std::string& text) {
    ChatPrompt prompt;
    const absl::Status status = ReadToolChoice(Json::parse(text), &prompt);
    EXPECT_TRUE(status.ok() || FieldOf(status) == "tool_choice") << status;
    return status.ok() ? std::to_string(static_cast<int>(prompt.tool_choice)) + prompt.tool_name : "refused";
  };
  EXPECT_EQ(read(R"("auto")"), "0");
  EXPECT_EQ(read(R"("none")"), "1");
  EXPECT_EQ(read(R"("required")"), "2");
  EXPECT_EQ(read(R"({"type": "function", "function": {"name": "f"}})"), "2f");
  for (const char* const bad :
       {R"("any")", "1", "null", "[]", "{}", R"({"type": "function"})", R"({"type": "function", "function": {}})",
        R"({"type": "function", "function": {"name": ""}})", R"({"type": "function", "function": {"name": 1}})",
        R"({"type": "allowed_tools", "function": {"name": "f"}})", R"({"function": {"name": "f"}})"}) {
    EXPECT_EQ(read(bad), "refused") << bad;
  }
}

TEST(ToolChoiceErrorTest, AllowedToolsHaveAModeAndNames) {
  const auto read = [](const std::string& allowed) -> std::string {
    ChatPrompt prompt;
    const absl::Status status =
        ReadToolChoice(Json::parse(R"({"type": "allowed_tools", "allowed_tools": )" + allowed + "}"), &prompt);
    if (!status.ok()) return FieldOf(status).value_or("");
    std::string text = std::to_string(static_cast<int>(prompt.tool_choice));
    for (const std::string& name : prompt.allowed_tools) text += name;
    return text;
  };
  const std::string f = R"({"type": "function", "function": {"name": "f"}})";
  EXPECT_EQ(read(R"({"mode": "auto", "tools": [)" + f + "]}"), "0f");
  EXPECT_EQ(read(R"({"mode": "required", "tools": [)" + f + R"(, {"type": "function", "function": {"name": "g"}}]})"),
            "2fg");
  const std::string field = "tool_choice.allowed_tools.";
  EXPECT_EQ(read("{\"tools\": [" + f + "]}"), field + "mode");
  EXPECT_EQ(read(R"({"mode": "none", "tools": [)" + f + "]}"), field + "mode");
  EXPECT_EQ(read(R"({"mode": "auto"})"), field + "tools");
  EXPECT_EQ(read(R"({"mode": "auto", "tools": []})"), field + "tools");
  EXPECT_EQ(read(R"({"mode": "auto", "tools": [)" + f + R"(, "g"]})"), field + "tools[1]");
  EXPECT_EQ(read(R"({"mode": "auto", "tools": [{"type": "function"}]})"), field + "tools[0]");
  EXPECT_EQ(read("1"), field + "mode");
}

}  // namespace
}  // namespace quire
