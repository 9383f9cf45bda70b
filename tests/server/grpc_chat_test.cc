// quire.v1.Generation's Chat and ChatStream.

#include <string>

#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/server/chat_replies.h"
#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using testing::FakeTokenizer;
using ::testing::HasSubstr;

constexpr char kReply[] = "<think>hm</think>yes<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

testing::FixtureOptions WithChat() {
  static const FakeTokenizer tokenizer;
  testing::FixtureOptions options;
  options.frontend.chat = testing::MakeChatFormat(tokenizer);
  return options;
}

class GrpcChatTest : public testing::GrpcTest {
 protected:
  GrpcChatTest() : GrpcTest(WithChat()) {}

  static v1::ChatRequest Request() {
    v1::ChatRequest request;
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content("hi");
    return request;
  }
  grpc::Status RunChat(const v1::ChatRequest& request, v1::GenerateResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::GenerateResponse ignored;
    return stub().Chat(&context, request, response == nullptr ? &ignored : response);
  }
  std::string PromptOf(const EngineRequest& request) { return tokenizer_.Decode(request.prompt_ids, false); }
};

TEST_F(GrpcChatTest, AStreamCarriesReasoningTextAndCalls) {
  v1::ChatRequest request = Request();
  v1::Tool* tool = request.add_tools();
  tool->set_name("f");
  tool->set_parameters_json("{\"type\": \"object\"}");
  grpc::ClientContext context;
  auto reader = stub().ChatStream(&context, request);
  const EngineRequest submitted = engine_.WaitForRequest(1);
  EXPECT_EQ(PromptOf(submitted), "f;u:hi;a:");
  testing::EmitReply(engine_, submitted.handle, kReply);
  std::string text, reasoning;
  std::vector<v1::ToolCall> calls;
  v1::GenerateResponse response;
  v1::Finish finish;
  while (reader->Read(&response)) {
    for (const v1::SequenceDelta& delta : response.sequences()) {
      text += delta.text();
      reasoning += delta.reasoning();
      calls.insert(calls.end(), delta.tool_calls().begin(), delta.tool_calls().end());
      if (delta.has_finish()) finish = delta.finish();
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "yes");
  EXPECT_EQ(reasoning, "hm");
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].name(), "f");
  EXPECT_EQ(calls[0].arguments_json(), "{\"a\":1}");
  EXPECT_EQ(finish.reason(), v1::Finish::REASON_TOOL_CALLS);
  EXPECT_EQ(response.usage().reasoning_tokens(), 11u);
}

TEST_F(GrpcChatTest, ARequiredCallIsAConstraint) {
  v1::ChatRequest request = Request();
  request.add_tools()->set_name("f");
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_REQUIRED);
  request.set_tool_name("f");
  grpc::ClientContext context;
  auto reader = stub().ChatStream(&context, request);
  const EngineRequest submitted = engine_.WaitForRequest(1);
  ASSERT_NE(submitted.constraint, nullptr);
  const auto sequence = submitted.constraint->Clone();
  for (const char c : std::string("<tool_call>\n{\"name\": \"f\", \"arguments\": {"))
    EXPECT_TRUE(sequence->Accept(static_cast<unsigned char>(c)).ok()) << c;
  context.TryCancel();
  reader->Finish();
}

TEST_F(GrpcChatTest, OnlyAllowedToolsAreShownAndCalled) {
  v1::ChatRequest request = Request();
  request.add_tools()->set_name("f");
  request.add_tools()->set_name("g");
  request.add_allowed_tools("g");
  {
    grpc::ClientContext context;
    auto reader = stub().ChatStream(&context, request);
    const EngineRequest submitted = engine_.WaitForRequest(1);
    EXPECT_EQ(PromptOf(submitted), "g;u:hi;a:");
    EXPECT_EQ(submitted.constraint, nullptr);
    context.TryCancel();
    reader->Finish();
  }
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_REQUIRED);
  grpc::ClientContext context;
  auto reader = stub().ChatStream(&context, request);
  const EngineRequest submitted = engine_.WaitForRequest(2);
  ASSERT_NE(submitted.constraint, nullptr);
  const auto sequence = submitted.constraint->Clone();
  for (const char c : std::string("<tool_call>\n{\"name\": \""))
    EXPECT_TRUE(sequence->Accept(static_cast<unsigned char>(c)).ok()) << c;
  EXPECT_FALSE(sequence->Clone()->Accept('f').ok());
  EXPECT_TRUE(sequence->Accept('g').ok());
  context.TryCancel();
  reader->Finish();
}

TEST_F(GrpcChatTest, AConversationKeepsItsForm) {
  v1::ChatRequest request = Request();
  v1::ChatMessage* message = request.add_messages();
  message->set_role("assistant");
  v1::ToolCall* call = message->add_tool_calls();
  call->set_id("1");
  call->set_name("g");
  call->set_arguments_json("{}");
  message = request.add_messages();
  message->set_role("tool");
  message->set_content("done");
  request.set_chat_template_kwargs_json("{\"think\": true}");
  request.mutable_request()->mutable_stopping()->set_max_tokens(1);
  grpc::ClientContext context;
  auto reader = stub().ChatStream(&context, request);
  const EngineRequest submitted = engine_.WaitForRequest(1);
  EXPECT_EQ(PromptOf(submitted), "u:hi;a:<tool_call>{\"name\": \"g\"}</tool_call>;t:done;a:<think>");
  EXPECT_EQ(submitted.params.max_tokens, 1);
  context.TryCancel();
  reader->Finish();
}

TEST_F(GrpcChatTest, RefusalsNameTheField) {
  const auto field = [this](const v1::ChatRequest& request) {
    const grpc::Status status = RunChat(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    google::rpc::BadRequest details;
    return testing::GetDetail(status, &details) ? details.field_violations(0).field() : "";
  };
  EXPECT_EQ(field(v1::ChatRequest()), "messages");
  v1::ChatRequest request = Request();
  request.mutable_request()->set_text("x");
  EXPECT_EQ(field(request), "request.prompt");
  request = Request();
  request.set_chat_template_kwargs_json("{");
  EXPECT_EQ(field(request), "chat_template_kwargs_json");
  request = Request();
  request.set_documents_json("{}");
  EXPECT_EQ(field(request), "documents");
  request = Request();
  request.set_chat_template("x");
  EXPECT_EQ(field(request), "chat_template");
  request = Request();
  request.add_tools()->set_parameters_json("[1");
  EXPECT_EQ(field(request), "tools[0].parameters_json");
  request = Request();
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_REQUIRED);
  EXPECT_EQ(field(request), "tool_choice");
  request.add_tools()->set_name("f");
  request.set_tool_name("g");
  EXPECT_EQ(field(request), "tool_choice");
  request.set_tool_name("f");
  request.mutable_request()->mutable_sampling()->mutable_beam_search()->set_width(2);
  EXPECT_EQ(field(request), "tool_choice");
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_AUTO);
  EXPECT_EQ(field(request), "tool_name");
  request = Request();
  request.add_tools()->set_name("f");
  request.add_allowed_tools("g");
  EXPECT_EQ(field(request), "tool_choice");
  request.set_allowed_tools(0, "f");
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_NONE);
  EXPECT_EQ(field(request), "allowed_tools");
  request.set_tool_choice(v1::ChatRequest::TOOL_CHOICE_REQUIRED);
  request.set_tool_name("f");
  EXPECT_EQ(field(request), "allowed_tools");
  request = Request();
  request.mutable_request()->mutable_sampling()->set_top_p(2);
  EXPECT_EQ(field(request), "sampling.top_p");
}

}  // namespace
}  // namespace quire
