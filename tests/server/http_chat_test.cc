// /v1/chat/completions: the shapes of answers over the engine on the simulated model, and of replies that a test
// writes.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/server/chat_replies.h"
#include "tests/server/http_chat_server.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using testing::ChatServer;
using testing::FakeEngine;
using testing::FakeTokenizer;
using testing::HttpClient;
using testing::HttpCompletionsTest;
using testing::Streamed;
using testing::Sum;

json Chat(const json& fields = json::object()) {
  json request = json::parse(R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 5,
                                 "ignore_eos": true})");
  if (!fields.is_null()) request.update(fields);
  return request;
}

// --- over the simulated model

class HttpChatTest : public HttpCompletionsTest {
 protected:
  HttpChatTest() { Load(); }
  HttpClient::Reply Post(const json& body, const std::string& path = "/v1/chat/completions") {
    HttpClient client(server_->address());
    return client.Post(path, body);
  }
};

TEST_F(HttpChatTest, AWholeAnswerHasOpenAisShape) {
  const json answer = Post(Chat({{"n", 2}})).json();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["model"], "sim");
  EXPECT_EQ(answer["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  ASSERT_EQ(answer["choices"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const json& choice = answer["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["message"]["role"], "assistant");
    EXPECT_TRUE(choice["message"]["content"].is_string());
    EXPECT_EQ(choice["finish_reason"], "length");
    EXPECT_TRUE(choice["logprobs"].is_null());
  }
  const json& usage = answer["usage"];
  EXPECT_EQ(usage["prompt_tokens"], std::string("u:hello;a:").size());
  EXPECT_EQ(usage["completion_tokens"], 16);
  EXPECT_EQ(usage["total_tokens"], 26);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(HttpChatTest, B145AStreamGivesWhatAWholeAnswerGives) {
  for (const json& fields :
       {json::object(), json{{"n", 3}}, json{{"logprobs", true}}, json{{"logprobs", true}, {"top_logprobs", 3}},
        json{{"max_completion_tokens", 3}}, json{{"min_tokens", 2}, {"stop", {"e", "a"}}, {"max_tokens", 60}}}) {
    SCOPED_TRACE(fields.dump());
    const json whole = Post(Chat(fields)).json();
    json more = fields;
    more["stream"] = true;
    more["stream_options"] = {{"include_usage", true}};
    const Streamed sum = Sum(Post(Chat(more)));
    ASSERT_EQ(sum.choices.size(), whole["choices"].size());
    for (const json& choice : whole["choices"]) {
      const json& streamed = sum.choices.at(choice["index"]);
      for (const char* const field : {"message", "finish_reason", "stop_reason"})
        EXPECT_EQ(streamed[field], choice[field]) << field;
      EXPECT_EQ(streamed.contains("logprobs"), choice["logprobs"].is_object());
      if (streamed.contains("logprobs")) {
        EXPECT_EQ(streamed["logprobs"]["content"], choice["logprobs"]["content"]);
      }
    }
    for (const char* const field : {"prompt_tokens", "completion_tokens", "total_tokens"})
      EXPECT_EQ(sum.usage[field], whole["usage"][field]);
  }
}

TEST_F(HttpChatTest, B108LogprobsHaveTheBytesOfEachToken) {
  const json choice = Post(Chat({{"logprobs", true}, {"top_logprobs", 2}})).json()["choices"][0];
  ASSERT_EQ(choice["logprobs"]["content"].size(), 8u);
  std::string bytes;
  for (const json& entry : choice["logprobs"]["content"]) {
    EXPECT_EQ(entry["top_logprobs"].size(), 2u);
    for (const json& byte : entry["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(choice["message"]["content"], tokenizer_.Decode(ids, true));
}

TEST_F(HttpChatTest, TokensAreNamedByTheirIdsOnRequest) {
  json fields = {{"logprobs", true}, {"return_token_ids", true}, {"return_tokens_as_token_ids", true}};
  const json whole = Post(Chat(fields)).json();
  std::string prompt;
  for (const json& id : whole["prompt_token_ids"]) prompt += static_cast<char>(id.get<int>());
  EXPECT_EQ(prompt, "u:hello;a:");
  const json& choice = whole["choices"][0];
  EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "token_id:" + choice["token_ids"][0].dump());
  fields["stream"] = true;
  const testing::SseEvents events = testing::ParseSse(Post(Chat(fields)).body);
  EXPECT_EQ(events.objects[0]["prompt_token_ids"], whole["prompt_token_ids"]);
  EXPECT_FALSE(events.objects[1].contains("prompt_token_ids"));
}

TEST_F(HttpChatTest, B138NullIsTheSameAsAbsent) {
  for (const char* const field : {"temperature",
                                  "n",
                                  "stop",
                                  "stream",
                                  "logprobs",
                                  "top_logprobs",
                                  "max_tokens",
                                  "max_completion_tokens",
                                  "tools",
                                  "tool_choice",
                                  "parallel_tool_calls",
                                  "response_format",
                                  "documents",
                                  "chat_template",
                                  "chat_template_kwargs",
                                  "add_generation_prompt",
                                  "continue_final_message",
                                  "reasoning_effort",
                                  "user",
                                  "modalities",
                                  "audio",
                                  "functions",
                                  "stream_options",
                                  "model",
                                  "echo",
                                  "prompt_logprobs"}) {
    json request = Chat({{field, nullptr}});
    if (std::string(field) == "max_tokens") request["max_completion_tokens"] = 2;
    EXPECT_EQ(Post(request).status, 200) << field;
  }
}

TEST_F(HttpChatTest, B142ARefusalHasItsStatusInBothModes) {
  const std::string too_long = R"({"messages": [{"role": "user", "content": ")" + std::string(600, 'x') + R"("}]})";
  const std::vector<std::pair<std::string, const char*>> cases = {
      {too_long, "messages"},
      {R"({"messages": null})", "messages"},
      {R"({"messages": "nope"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages[0].content[0].type"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {R"({"tool_choice": "perhaps"})", "tool_choice"},
      {R"({"tool_choice": "required"})", "tool_choice"},
      {R"({"tool_choice": "required", "tools": []})", "tool_choice"},
      {R"({"tool_choice": {"type": "function", "function": {"name": "g"}},
           "tools": [{"type": "function", "function": {"name": "f"}}]})",
       "tool_choice"},
      {R"({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools":
           [{"type": "function", "function": {"name": "g"}}]}},
           "tools": [{"type": "function", "function": {"name": "f"}}]})",
       "tool_choice"},
      {R"({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": []}}})",
       "tool_choice.allowed_tools.mode"},
      {R"({"tool_choice": "required", "tools": [{"type": "function", "function":
           {"name": "f", "parameters": {"not": {}}}}]})",
       "tools"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "description": 5}}]})",
       "tools[0].function.description"},
      {R"({"tool_choice": "required", "response_format": {"type": "json_object"},
           "tools": [{"type": "function", "function": {"name": "f"}}]})",
       "response_format.type"},
      {R"({"chat_template": "x"})", "chat_template"},
      {R"({"chat_template": 1})", "chat_template"},
      {R"({"chat_template_kwargs": 1})", "chat_template_kwargs"},
      {R"({"chat_template_kwargs": {"chat_template": "x"}})", "chat_template_kwargs.chat_template"},
      {R"({"documents": 1})", "documents"},
      {R"({"top_logprobs": 2})", "top_logprobs"},
      {R"({"logprobs": 2})", "logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"max_completion_tokens": 0})", "max_completion_tokens"},
      {R"({"max_completion_tokens": 508})", "max_completion_tokens"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_tokens": "many"})", "max_tokens"},
      {R"({"temperature": -1})", "temperature"},
      {R"({"functions": [{"name": "f"}]})", "functions"},
      {R"({"modalities": ["audio"]})", "modalities"},
      {R"({"echo": true})", "echo"},
      {R"({"continue_final_message": true, "add_generation_prompt": true})", "continue_final_message"},
  };
  for (const auto& [fields, param] : cases) {
    for (const bool stream : {false, true}) {
      json request = Chat(json::parse(fields));
      request["stream"] = stream;
      const HttpClient::Reply reply = Post(request);
      EXPECT_EQ(reply.status, 400) << fields;
      EXPECT_EQ(reply.json()["error"]["param"], param) << reply.body;
    }
  }
  EXPECT_EQ(Post(Chat({{"model", "other"}})).status, 404);
}

TEST_F(HttpChatTest, B157FieldsThatNobodyKnowsAreIgnored) {
  const json expected = Post(Chat()).json()["choices"];
  json request = Chat({{"some_vendor_field", {1}}, {"max_token", 3}, {"store", true}, {"metadata", {{"a", "b"}}}});
  request["messages"][0]["name"] = nullptr;
  HttpClient::Reply reply = Post(request);
  EXPECT_EQ(reply.json()["choices"], expected);
  EXPECT_EQ(reply.headers["x-ignored-fields"], "max_token,metadata,some_vendor_field,store");
  request["stream"] = true;
  EXPECT_EQ(Post(request).headers.count("x-ignored-fields"), 1u);
  EXPECT_EQ(Post(Chat({{"tools", nullptr}})).headers.count("x-ignored-fields"), 0u);
  EXPECT_EQ(Post(Chat({{"model", "other"}, {"max_token", 1}})).status, 404);
}

TEST_F(HttpChatTest, TheLastMessageMayBeContinued) {
  json request = Chat({{"continue_final_message", true}, {"add_generation_prompt", false}});
  request["messages"].push_back({{"role", "assistant"}, {"content", "well"}});
  EXPECT_EQ(Post(request).json()["usage"]["prompt_tokens"], std::string("u:hello;a:well").size());
  request.erase("add_generation_prompt");
  EXPECT_EQ(Post(request).status, 200);
}

TEST_F(HttpChatTest, TokenizeTakesConversations) {
  const json messages = Chat()["messages"];
  const json answer = Post({{"messages", messages}}, "/tokenize").json();
  EXPECT_EQ(answer["count"], std::string("u:hello;a:").size());
  EXPECT_EQ(answer["tokens"][0], 'u');
  EXPECT_EQ(Post({{"messages", messages}, {"add_generation_prompt", false}}, "/tokenize").json()["count"], 8);
  EXPECT_EQ(Post({{"messages", 1}}, "/tokenize").json()["error"]["param"], "messages");
}

// --- replies that a test writes

class HttpReplyTest : public ::testing::Test {
 protected:
  HttpReplyTest() { server_ = std::make_unique<ChatServer>(engine_, tokenizer_, testing::MakeChatFormat(tokenizer_)); }

  // The answer to a request whose reply is `text`.
  HttpClient::Reply Ask(const json& fields, const std::string& text, FinishReason reason = FinishReason::kStop) {
    json request =
        Chat(json::parse(R"({"tools": [{"type": "function", "function": {"name": "f"}}], "max_tokens": 999})"));
    request.update(fields);
    HttpClient client(server_->address());
    client.Send(HttpClient::PostText("/v1/chat/completions", request.dump()));
    const EngineRequest submitted = engine_.WaitForRequest(++num_started_);
    testing::EmitReply(engine_, submitted.handle, text, reason);
    return client.Read();
  }

  FakeEngine engine_{300, 4096};
  FakeTokenizer tokenizer_;
  size_t num_started_ = 0;
  std::unique_ptr<ChatServer> server_;
};

constexpr char kCall[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

TEST_F(HttpReplyTest, CallsAndReasoningHaveFieldsOfTheirOwn) {
  const json choice = Ask({{"stream", false}}, std::string("<think>hm</think>") + kCall + kCall).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 2u);
  const json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"], json::parse(R"({"name": "f", "arguments": "{\"a\":1}"})"));
  EXPECT_FALSE(call.contains("index"));
}

TEST_F(HttpReplyTest, StreamedRepliesSumUpToWholeOnes) {
  for (const std::string& text :
       {std::string("plain"), std::string(kCall), "x" + std::string(kCall) + "\n" + kCall,
        std::string("<think>a</think>b"), std::string("<think>only"),
        std::string("<tool_call>{broken</tool_call> and on"), std::string("\u00e9\u4f60"), std::string("")}) {
    SCOPED_TRACE(text);
    json whole = Ask({{"stream", false}}, text).json();
    const Streamed sum = Sum(Ask({{"stream", true}, {"stream_options", {{"include_usage", true}}}}, text));
    json streamed = sum.choices.at(0);
    json& message = whole["choices"][0]["message"];
    for (json* const side : {&message, &streamed["message"]}) {
      if (side->value("content", json()).is_null()) (*side)["content"] = "";
      if (!side->contains("tool_calls")) continue;
      for (json& call : (*side)["tool_calls"]) call.erase("id");  // fresh ones
    }
    EXPECT_EQ(streamed["message"], message);
    EXPECT_EQ(streamed["finish_reason"], whole["choices"][0]["finish_reason"]);
    EXPECT_EQ(sum.usage["completion_tokens"], whole["usage"]["completion_tokens"]);
    EXPECT_EQ(sum.usage["completion_tokens_details"], whole["usage"]["completion_tokens_details"]);
  }
}

// OpenAI's client tells by the next event that a call is whole.
TEST_F(HttpReplyTest, TheEndOfAStreamThatCallsToolsIsAnEventOfItsOwn) {
  const std::vector<json> events = testing::ParseSse(Ask({{"stream", true}}, std::string(kCall) + kCall).body).objects;
  ASSERT_GE(events.size(), 2u);
  const json& last = events.back()["choices"][0];
  EXPECT_EQ(last["delta"], json::object());
  EXPECT_EQ(last["finish_reason"], "tool_calls");
  size_t num_calls = 0;
  for (const json& event : events) {
    if (!event["choices"][0]["delta"].contains("tool_calls")) continue;
    EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
    num_calls += event["choices"][0]["delta"]["tool_calls"].size();
  }
  EXPECT_EQ(num_calls, 2u);
}

TEST_F(HttpReplyTest, AReplyThatRanOutOfTokensSaysSo) {
  const json choice = Ask({{"stream", false}}, std::string(kCall) + "x", FinishReason::kLength).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
}

TEST_F(HttpReplyTest, ADeadlineInAHeaderReachesTheEngineAndIsAnswered504) {
  for (const bool stream : {false, true}) {
    HttpClient client(server_->address());
    client.Send(HttpClient::PostText("/v1/chat/completions", Chat({{"stream", stream}, {"max_tokens", 99}}).dump(),
                                     "X-Request-Timeout-Ms: 60000\r\n"));
    const EngineRequest submitted = engine_.WaitForRequest(++num_started_);
    EXPECT_GT(submitted.deadline, absl::Now());
    EXPECT_LE(submitted.deadline, absl::Now() + absl::Minutes(1));
    StepOutputs step;
    step.sequences.push_back(FakeEngine::MakeEvent(submitted.handle, -1, FinishReason::kError, 0));
    step.sequences.back().error = absl::DeadlineExceededError("too late");
    engine_.Emit(std::move(step));
    const HttpClient::Reply reply = client.Read();
    EXPECT_EQ(reply.status, 504) << reply.body;
    EXPECT_EQ(reply.json()["error"]["code"], 504);
  }
}

TEST_F(HttpReplyTest, B086AStopTextIsLeftOutUnlessItIsWanted) {
  EXPECT_EQ(Ask({{"stop", "7"}}, "5 6 7", FinishReason::kNone).json()["choices"][0]["message"]["content"], "5 6 ");
  const json choice =
      Ask({{"stop", "7"}, {"include_stop_str_in_output", true}}, "5 6 7", FinishReason::kNone).json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "5 6 7");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "7");
}

}  // namespace
}  // namespace quire
