#include "model/chat/tool_parser.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

struct Reply {
  std::string name;
  std::string text;
  ToolSyntax tools;
  ReasoningSyntax reasoning;
  ReplyDelta expected;
};

std::vector<Reply> ReadReplies() {
  const std::map<std::string, ToolSyntax> tools = {{"hermes", ToolSyntax::kHermes},
                                                   {"llama_json", ToolSyntax::kLlamaJson},
                                                   {"mistral", ToolSyntax::kMistral},
                                                   {"pythonic", ToolSyntax::kPythonic}};
  const std::map<std::string, ReasoningSyntax> reasoning = {{"none", ReasoningSyntax::kNone},
                                                            {"think", ReasoningSyntax::kThink},
                                                            {"think_started", ReasoningSyntax::kThinkStarted}};
  std::vector<Reply> replies;
  for (const Json& entry : testing::ReadJsonLines(testing::SourcePath("tests/data/chat/replies.jsonl"))) {
    Reply reply{entry["name"], entry["reply"], tools.at(entry["tools"]), reasoning.at(entry["reasoning_syntax"]), {}};
    reply.expected.content = entry["content"];
    reply.expected.reasoning = entry["reasoning"];
    for (const Json& call : entry["calls"]) reply.expected.calls.push_back({call["name"], call["arguments"]});
    replies.push_back(std::move(reply));
  }
  return replies;
}

void Add(ReplyDelta delta, ReplyDelta* sum) {
  sum->content += delta.content;
  sum->reasoning += delta.reasoning;
  for (ToolCall& call : delta.calls) sum->calls.push_back(std::move(call));
}

// Feeds the text cut at the given offsets.
ReplyDelta Parse(const Reply& reply, const std::vector<size_t>& cuts) {
  ReplyParser parser(reply.tools, reply.reasoning);
  ReplyDelta sum;
  size_t from = 0;
  for (const size_t cut : cuts) {
    Add(parser.Feed(std::string_view(reply.text).substr(from, cut - from)), &sum);
    from = cut;
  }
  Add(parser.Feed(std::string_view(reply.text).substr(from)), &sum);
  Add(parser.Finish(), &sum);
  return sum;
}

void ExpectEqual(const ReplyDelta& got, const ReplyDelta& expected) {
  EXPECT_EQ(got.content, expected.content);
  EXPECT_EQ(got.reasoning, expected.reasoning);
  EXPECT_EQ(got.calls, expected.calls);
}

TEST(ToolParserTest, RecordedRepliesWholeAndCutAnywhere) {
  std::map<ToolSyntax, int> count;
  for (const Reply& reply : ReadReplies()) {
    SCOPED_TRACE(reply.name);
    ++count[reply.tools];
    ExpectEqual(Parse(reply, {}), reply.expected);
    std::vector<size_t> every;
    for (size_t cut = 1; cut < reply.text.size(); ++cut) {
      ASSERT_EQ(Parse(reply, {cut}), reply.expected) << "cut at " << cut;
      every.push_back(cut);
    }
    ExpectEqual(Parse(reply, every), reply.expected);
  }
  EXPECT_EQ(count.size(), 4u);
  for (const auto& [tools, replies] : count) EXPECT_GE(replies, 30);
}

// Replies cut off and changed at random, of every family through every parser: the cuts never matter.
TEST(ToolParserTest, ChangedRepliesDoNotDependOnTheCuts) {
  std::mt19937_64 random(3);
  const std::vector<Reply> replies = ReadReplies();
  constexpr std::string_view kPieces[] = {"<tool_call>",
                                          "</tool_call>",
                                          "[TOOL_CALLS]",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "\"",
                                          "\\",
                                          ";",
                                          "<think>",
                                          "</think>",
                                          " ",
                                          "\n",
                                          "f(a=1)",
                                          "<|python_tag|>",
                                          "(",
                                          ")",
                                          "'",
                                          "x",
                                          "[ARGS]"};
  for (int i = 0; i < 3000; ++i) {
    Reply reply = replies[random() % replies.size()];
    reply.tools = static_cast<ToolSyntax>(random() % 5);
    for (int changes = 0; changes < 3; ++changes) {
      const size_t at = random() % (reply.text.size() + 1);
      if (random() % 3 == 0) {
        reply.text.resize(at);
      } else {
        reply.text.insert(at, kPieces[random() % std::size(kPieces)]);
      }
    }
    SCOPED_TRACE(reply.text);
    const ReplyDelta whole = Parse(reply, {});
    std::vector<size_t> cuts;
    for (size_t cut = 1; cut < reply.text.size(); ++cut) {
      if (random() % 3 == 0) cuts.push_back(cut);
    }
    ASSERT_EQ(Parse(reply, cuts), whole);
    if (reply.tools == ToolSyntax::kNone && reply.reasoning == ReasoningSyntax::kNone) {
      EXPECT_EQ(whole.content, reply.text);
    }
  }
}

std::string Repeat(std::string_view text, size_t count) {
  std::string repeated;
  for (size_t i = 0; i < count; ++i) repeated += text;
  return repeated;
}

// Byte by byte: minutes each, if what waits were read again for each byte.
TEST(ToolParserTest, LongRepliesTakeLinearTime) {
  constexpr size_t kBytes = 1 << 17;
  const std::string words = Repeat("ab[]\\\"{}, ", kBytes / 10), spaces(kBytes, ' '),
                    members = Repeat("[{}],", kBytes / 5);
  const ToolSyntax hermes = ToolSyntax::kHermes, llama = ToolSyntax::kLlamaJson, mistral = ToolSyntax::kMistral,
                   pythonic = ToolSyntax::kPythonic;
  const std::string json = R"({"name": "f", "arguments": {"a": ")" + words + R"("}})";
  const std::vector<std::pair<ToolSyntax, std::string>> with_calls = {
      {hermes, "<tool_call>" + json + "</tool_call>"},
      {hermes, "<tool_call>" + spaces + R"({"name": "f", "arguments": {}})" + spaces + "</tool_call>"},
      {hermes, R"(<tool_call>{"name": "f", "arguments": {"a": [)" + members + "0]}}</tool_call>"},
      {llama, json},
      {llama, spaces + R"({"name": "f", "parameters": {}})" + spaces + ";" + spaces + json},
      {llama, "<|python_tag|>" + spaces + json},
      {mistral, "[TOOL_CALLS]" + spaces + "[" + json + "]"},
      {mistral, "[TOOL_CALLS]" + Repeat("f", kBytes) + "[ARGS]" + R"({"a": ")" + words + R"("})"},
      {pythonic, spaces + "[f(a=\"" + words + "\")]"},
      {pythonic, "[f(a=[" + members + "])]"},
  };
  const std::vector<std::pair<ToolSyntax, std::string>> without = {
      {hermes, "<tool_call>" + words},
      {hermes, "<tool_call>{}" + words + "</tool_call>"},
      {hermes, "<tool_call>{" + spaces},
      {llama, "{" + words},
      {mistral, "[TOOL_CALLS]" + spaces + Repeat("f", kBytes)},
      {pythonic, "[" + spaces},
  };
  const auto check = [](const std::pair<ToolSyntax, std::string>& entry, bool has_call) {
    SCOPED_TRACE(entry.second.substr(0, 40));
    Reply reply{"", entry.second, entry.first, ReasoningSyntax::kThink, {}};
    reply.text = "<think>x" + std::string(kBytes, ' ') + "</think>" + reply.text;
    std::vector<size_t> every;
    for (size_t cut = 1; cut < reply.text.size(); ++cut) every.push_back(cut);
    const ReplyDelta parsed = Parse(reply, every);
    EXPECT_EQ(!parsed.calls.empty(), has_call);
    EXPECT_TRUE(parsed == Parse(reply, {}));
  };
  for (const auto& entry : with_calls) check(entry, true);
  for (const auto& entry : without) check(entry, false);
  // Fed whole, each of many calls costs no more than itself.
  Reply calls{"",
              Repeat("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n", 100'000),
              hermes,
              ReasoningSyntax::kNone,
              {}};
  EXPECT_EQ(Parse(calls, {}).calls.size(), 100'000u);
}

// As in JSON: their names are compared pairwise.
TEST(ToolParserTest, PythonicCallsHaveBoundedArguments) {
  for (const int count : {4096, 4097}) {
    std::string arguments, members;
    for (int i = 0; i < count; ++i) {
      arguments += "a" + std::to_string(i) + "=1,";
      members += "'a" + std::to_string(i) + "':1,";
    }
    for (const std::string& text : {"[f(" + arguments + ")]", "[f(a={" + members + "})]"}) {
      const ReplyDelta parsed = Parse({"", text, ToolSyntax::kPythonic, ReasoningSyntax::kNone, {}}, {});
      EXPECT_EQ(parsed.calls.size(), count == 4096 ? 1u : 0u);
      EXPECT_EQ(parsed.content, count == 4096 ? "" : text);
    }
  }
}

TEST(ToolParserTest, ContentComesOutAsSoonAsItCan) {
  ReplyParser parser(ToolSyntax::kHermes, ReasoningSyntax::kNone);
  EXPECT_EQ(parser.Feed("Hello").content, "Hello");
  EXPECT_EQ(parser.Feed(" <").content, "");
  EXPECT_EQ(parser.Feed("b>").content, " <b>");
}

}  // namespace
}  // namespace quire
