// Conversations through the front end: rendered on its threads, replies split on the way back.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/frontend/errors.h"
#include "server/frontend/frontend.h"
#include "server/frontend/pending_output.h"
#include "tests/server/chat_replies.h"
#include "tests/testing/collecting_sink.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using testing::CollectingSink;
using ::testing::ElementsAre;
using testing::FakeEngine;
using testing::FakeTokenizer;
using ::testing::HasSubstr;

class FrontendChatTest : public ::testing::Test {
 protected:
  static constexpr int32_t kMark = FakeTokenizer::kFirstPiece;

  FrontendChatTest() : tokenizer_({"[TOOL_CALLS]"}) {
    tokenizer_.first_special_piece = kMark;
    options_.served_model_names = {"fake"};
  }

  void Start(const std::string& form = testing::kChatTemplate, const ChatFormatOptions& options = {}) {
    options_.chat = testing::MakeChatFormat(tokenizer_, form, options);
    frontend_ = std::make_unique<Frontend>(engine_, tokenizer_, options_);
  }
  static ChatPrompt Hello(bool with_tools) {
    ChatPrompt prompt;
    prompt.messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
    if (with_tools) prompt.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    return prompt;
  }
  // The handle, once the engine has the request.
  uint64_t Generate(ChatPrompt prompt, GenerateRequest request = {}) {
    request.add_special_tokens = false;
    request.prompt = std::make_shared<const ChatPrompt>(std::move(prompt));
    sink_ = std::make_shared<CollectingSink>();
    const auto handle = frontend_->Generate(std::move(request), sink_);
    EXPECT_TRUE(handle.ok()) << handle.status();
    submitted_ = engine_.WaitForRequest(++num_started_);
    return *handle;
  }
  SequenceDelta Reply(ChatPrompt prompt, std::string_view text, FinishReason reason = FinishReason::kStop) {
    const uint64_t handle = Generate(std::move(prompt));
    testing::EmitReply(engine_, handle, text, reason);
    sink_->WaitForEnd();
    return sink_->sequences[0];
  }

  FakeEngine engine_{300, 4096};
  FakeTokenizer tokenizer_;
  FrontendOptions options_;
  std::shared_ptr<CollectingSink> sink_;
  EngineRequest submitted_;
  size_t num_started_ = 0;
  std::unique_ptr<Frontend> frontend_;  // last: its threads use the rest
};

TEST_F(FrontendChatTest, ThePromptIsTheRenderedConversation) {
  Start();
  Generate(Hello(/*with_tools=*/true));
  EXPECT_EQ(tokenizer_.Decode(submitted_.prompt_ids, false), "f;u:hi;a:");
  EXPECT_EQ(submitted_.params.max_tokens, 4096 - 9);
}

TEST_F(FrontendChatTest, RefusalsComeThroughTheSink) {
  Start("{{ raise_exception('no') }}");
  GenerateRequest request;
  request.prompt = std::make_shared<const ChatPrompt>(Hello(false));
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(frontend_->Generate(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_EQ(sink->status.message(), "messages: no");
  EXPECT_EQ(FieldOf(sink->status), "messages");
  options_.chat = nullptr;
  frontend_ = nullptr;
  FakeEngine engine;
  Frontend without(engine, tokenizer_, options_);
  sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(without.Generate(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_EQ(sink->status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FrontendChatTest, ALongConversationIsRefusedWithItsLength) {
  Start();
  ChatPrompt prompt = Hello(false);
  prompt.messages[0]["content"] = std::string(5000, 'x');
  GenerateRequest request;
  request.prompt = std::make_shared<const ChatPrompt>(std::move(prompt));
  auto sink = std::make_shared<CollectingSink>();
  ASSERT_TRUE(frontend_->Generate(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_THAT(std::string(sink->status.message()), HasSubstr("max_model_len is 4096"));
}

TEST_F(FrontendChatTest, AReplyIsSplitIntoReasoningTextAndCalls) {
  Start();
  const SequenceDelta reply =
      Reply(Hello(true),
            "<think>\nhm\n</think>\n\nI look.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>");
  EXPECT_EQ(reply.reasoning, "hm");
  EXPECT_EQ(reply.text, "I look.");
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_EQ(reply.tool_calls[0].name, "f");
  EXPECT_EQ(reply.tool_calls[0].arguments, "{\"a\":1}");
  EXPECT_THAT(reply.tool_calls[0].id, ::testing::StartsWith("call_"));
  EXPECT_TRUE(reply.finish->called_tools);
  EXPECT_EQ(sink_->usage.reasoning_tokens, static_cast<int32_t>(std::string("<think>\nhm\n</think>").size() - 6))
      << "from the token that opens it to the one that closes it";
}

TEST_F(FrontendChatTest, WithoutToolsCallsAreText) {
  Start();
  const std::string text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  const SequenceDelta reply = Reply(Hello(false), text);
  EXPECT_EQ(reply.text, text);
  EXPECT_FALSE(reply.finish->called_tools);
}

TEST_F(FrontendChatTest, AReplyThatEndsEarlyLosesNothing) {
  Start();
  EXPECT_EQ(Reply(Hello(true), "x<tool_call>{\"name\": \"f", FinishReason::kLength).text, "x<tool_call>{\"name\": \"f");
  EXPECT_EQ(Reply(Hello(true), "<think>half", FinishReason::kLength).reasoning, "half");
  const uint64_t handle = Generate(Hello(true));
  for (const char c : std::string("y<tool_c")) engine_.EmitToken(handle, c);
  sink_->WaitForWrites(2);
  frontend_->Abort({sink_->id});
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences[0].text, "y<tool_c");
}

TEST_F(FrontendChatTest, ThePromptMayHaveOpenedTheReasoning) {
  Start();
  ChatPrompt prompt = Hello(false);
  prompt.template_kwargs["think"] = true;
  const SequenceDelta reply = Reply(std::move(prompt), "so</think>yes");
  EXPECT_EQ(reply.reasoning, "so");
  EXPECT_EQ(reply.text, "yes");
}

TEST_F(FrontendChatTest, StructuredOutputBeginsBehindTheReasoning) {
  Start();
  GenerateRequest request;
  request.structured_output.kind = StructuredOutput::Kind::kChoices;
  request.structured_output.choices = {"yes", "no"};
  const auto allows = [&](const std::string& text) {
    const auto sequence = submitted_.constraint->Clone();
    for (const char c : text) {
      if (!sequence->Accept(static_cast<unsigned char>(c)).ok()) return false;
    }
    return true;
  };
  Generate(Hello(false), request);
  EXPECT_TRUE(allows("yes"));
  EXPECT_TRUE(allows("<think>\nhm\n</think>\n\nyes"));
  ChatPrompt prompt = Hello(false);
  prompt.template_kwargs["think"] = true;
  Generate(std::move(prompt), request);
  EXPECT_TRUE(allows("hm\n</think>\n\nyes"));
  EXPECT_FALSE(allows("</think>maybe"));
  const SequenceDelta reply = Reply(Hello(false), "<think>\nhm\n</think>\n\nyes");
  EXPECT_EQ(reply.text, "yes");
}

TEST_F(FrontendChatTest, OnlyTheFirstCallCountsWhereParallelOnesAreUnwanted) {
  Start();
  const std::string two =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  const SequenceDelta both = Reply(Hello(true), two);
  ASSERT_EQ(both.tool_calls.size(), 2u);
  EXPECT_NE(both.tool_calls[0].id, both.tool_calls[1].id);
  ChatPrompt prompt = Hello(true);
  prompt.parallel_tool_calls = false;
  const SequenceDelta one = Reply(std::move(prompt), two);
  ASSERT_EQ(one.tool_calls.size(), 1u);
  EXPECT_EQ(one.tool_calls[0].name, "f");
}

TEST_F(FrontendChatTest, SequencesHaveCallsOfTheirOwn) {
  Start();
  GenerateRequest request;
  request.n = 2;
  const uint64_t handle = Generate(Hello(true), request);
  for (const char c : std::string("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>")) {
    engine_.EmitToken(handle, c, FinishReason::kNone, 0);
    engine_.EmitToken(handle, c, FinishReason::kNone, 1);
  }
  engine_.EmitToken(handle, FakeTokenizer::kEos, FinishReason::kStop, 0);
  engine_.EmitToken(handle, FakeTokenizer::kEos, FinishReason::kStop, 1);
  sink_->WaitForEnd();
  ASSERT_EQ(sink_->sequences[0].tool_calls.size(), 1u);
  ASSERT_EQ(sink_->sequences[1].tool_calls.size(), 1u);
  EXPECT_NE(sink_->sequences[0].tool_calls[0].id, sink_->sequences[1].tool_calls[0].id);
}

TEST_F(FrontendChatTest, MistralsMarkMayBeASpecialTokenAndItsIdsHaveNineLetters) {
  ChatFormatOptions options;
  options.tool_syntax = ToolSyntax::kMistral;
  Start(testing::kChatTemplate, options);
  const uint64_t handle = Generate(Hello(true));
  engine_.EmitToken(handle, FakeTokenizer::kBos);  // hidden, as special tokens are
  engine_.EmitToken(handle, kMark);
  testing::EmitReply(engine_, handle, "[{\"name\": \"f\", \"arguments\": {}}]");
  sink_->WaitForEnd();
  EXPECT_EQ(sink_->sequences[0].text, "");
  ASSERT_EQ(sink_->sequences[0].tool_calls.size(), 1u);
  EXPECT_EQ(sink_->sequences[0].tool_calls[0].id.size(), 9u);
}

// Each byte is a step of its own, so this is the stream cut at every byte.
TEST_F(FrontendChatTest, RecordedRepliesComeOutAsTheParserHasThemWhole) {
  int checked = 0;
  for (const Json& entry : testing::ReadJsonLines(testing::SourcePath("tests/data/chat/replies.jsonl"))) {
    if (entry["tools"] != "hermes" || entry["reasoning_syntax"] != "think") continue;
    if (frontend_ == nullptr) Start();
    SCOPED_TRACE(entry["name"]);
    const SequenceDelta reply = Reply(Hello(true), entry["reply"].get<std::string>());
    EXPECT_EQ(entry["content"], reply.text);
    EXPECT_EQ(entry["reasoning"], reply.reasoning);
    ASSERT_EQ(reply.tool_calls.size(), entry["calls"].size());
    for (size_t i = 0; i < reply.tool_calls.size(); ++i) {
      EXPECT_EQ(entry["calls"][i]["name"], reply.tool_calls[i].name);
      EXPECT_EQ(entry["calls"][i]["arguments"], reply.tool_calls[i].arguments);
    }
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

TEST(PendingChatTest, ReasoningTextAndCallsAreMergedAndCutInOrder) {
  PendingOutput pending;
  const auto add = [&pending](std::string reasoning, std::string text, std::vector<ToolUse> calls, bool last) {
    OutputDelta delta;
    delta.sequences.emplace_back();
    delta.sequences[0].reasoning = std::move(reasoning);
    delta.sequences[0].text = std::move(text);
    delta.sequences[0].tool_calls = std::move(calls);
    if (last) delta.sequences[0].finish.emplace();
    if (last) delta.usage.emplace();
    pending.Merge(std::move(delta));
  };
  add(std::string(600, 'r'), "", {}, false);
  add("s", std::string(600, 't'), {}, false);
  add("", "u", {{"1", "f", std::string(600, 'x')}, {"2", "g", "{}"}}, true);
  std::string reasoning, text;
  std::vector<std::string> calls;
  int messages = 0;
  while (!pending.empty()) {
    const OutputDelta part = pending.Take(1000);
    ++messages;
    for (const SequenceDelta& sequence : part.sequences) {
      EXPECT_TRUE(sequence.reasoning.empty() || text.empty()) << "reasoning behind text";
      reasoning += sequence.reasoning;
      text += sequence.text;
      for (const ToolUse& call : sequence.tool_calls) calls.push_back(call.name);
      EXPECT_EQ(sequence.finish.has_value(), part.is_last());
    }
  }
  EXPECT_GE(messages, 3);
  EXPECT_EQ(reasoning, std::string(600, 'r') + "s");
  EXPECT_EQ(text, std::string(600, 't') + "u");
  EXPECT_THAT(calls, ElementsAre("f", "g"));
}

}  // namespace
}  // namespace quire
