#include <string>

#include "gtest/gtest.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

TEST(RenderTest, AMessageShowsOnlyWhatItCarries) {
  v1::GenerateResponse message;
  message.set_request_id("r");
  EXPECT_EQ(JsonLine(MessageToJson(message)), "{\"request_id\":\"r\"}\n");
  message.mutable_prompt()->set_prompt_tokens(3);
  message.mutable_prompt()->set_seed(-5);
  EXPECT_EQ(JsonLine(MessageToJson(message)), "{\"request_id\":\"r\",\"prompt\":{\"prompt_tokens\":3,\"seed\":-5}}\n");
}

TEST(RenderTest, SequenceWithFinish) {
  v1::GenerateResponse message;
  v1::SequenceDelta* delta = message.add_sequences();
  delta->set_index(1);
  delta->set_text("a\n\"");
  delta->add_token_ids(7);
  delta->mutable_finish()->set_reason(v1::Finish::REASON_STOP);
  delta->mutable_finish()->set_stop_string("\n");
  EXPECT_EQ(MessageToJson(message)["sequences"].dump(),
            R"([{"index":1,"text":"a\n\"","token_ids":[7],"finish":{"reason":"stop","stop_string":"\n"}}])");
  delta->mutable_finish()->set_eos_token_id(2);
  EXPECT_EQ(MessageToJson(message)["sequences"][0]["finish"].dump(), R"({"reason":"stop","eos_token_id":2})");
  delta->mutable_finish()->set_stop_token_id(0);
  EXPECT_EQ(MessageToJson(message)["sequences"][0]["finish"].dump(), R"({"reason":"stop","stop_token_id":0})");
}

TEST(RenderTest, AnEchoIsPartOfThePrompt) {
  v1::GenerateResponse message;
  message.mutable_prompt()->set_prompt_tokens(2);
  EXPECT_FALSE(MessageToJson(message)["prompt"].contains("token_ids"));
  message.mutable_prompt()->set_text("ab");
  message.mutable_prompt()->add_token_ids(5);
  message.mutable_prompt()->add_token_ids(6);
  EXPECT_EQ(MessageToJson(message)["prompt"].dump(), R"({"prompt_tokens":2,"seed":0,"text":"ab","token_ids":[5,6]})");
}

TEST(RenderTest, PromptLogprobsBeginWithNull) {
  v1::GenerateResponse message;
  message.mutable_prompt()->add_logprobs();
  v1::PromptTokenLogprobs* logprobs = message.mutable_prompt()->add_logprobs();
  logprobs->set_logprob(-0.5F);
  logprobs->set_rank(2);
  v1::TokenLogprob* top = logprobs->add_top();
  top->set_token_id(9);
  top->set_logprob(-0.25F);
  EXPECT_EQ(MessageToJson(message)["prompt"]["logprobs"].dump(),
            R"([null,{"logprob":-0.5,"rank":2,"top":[[9,-0.25]]}])");
}

TEST(RenderTest, OneAlternativeIsStillAListOfPairs) {
  v1::GenerateResponse message;
  v1::TokenLogprobs* logprobs = message.add_sequences()->add_logprobs();
  logprobs->set_logprob(-1);
  logprobs->set_rank(1);
  EXPECT_EQ(MessageToJson(message)["sequences"][0]["logprobs"].dump(), R"([{"logprob":-1.0,"rank":1,"top":[]}])");
  logprobs->add_top()->set_token_id(3);
  EXPECT_EQ(MessageToJson(message)["sequences"][0]["logprobs"][0]["top"].dump(), "[[3,0.0]]");
}

TEST(RenderTest, UsageAndTimings) {
  v1::GenerateResponse message;
  message.set_request_id("r");
  message.mutable_usage()->set_prompt_tokens(5);
  message.mutable_usage()->set_cached_tokens(4);
  message.mutable_usage()->set_completion_tokens(3);
  message.mutable_timings()->set_queue(0.5);
  message.mutable_timings()->set_last_step(12);
  EXPECT_EQ(UsageToJson(message).dump(),
            R"({"request_id":"r","usage":{"prompt_tokens":5,"cached_tokens":4,"completion_tokens":3},)"
            R"("timings":{"queue":0.5,"prefill":0.0,"decode":0.0,"total":0.0,"preemptions":0,"first_step":0,)"
            R"("last_step":12}})");
}

TEST(RenderTest, StatsOfAServerThatDidNothing) {
  const std::string text = StatsText(v1::GetStatsResponse());
  EXPECT_NE(text.find("NOT healthy"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("mean step"), std::string::npos);
  EXPECT_EQ(StatsToJson(v1::GetStatsResponse())["prefix_hit_rate"], 0.0);
}

TEST(RenderTest, FinishReasons) {
  EXPECT_EQ(FinishReasonName(v1::Finish::REASON_STOP), "stop");
  EXPECT_EQ(FinishReasonName(v1::Finish::REASON_LENGTH), "length");
  EXPECT_EQ(FinishReasonName(v1::Finish::REASON_ABORT), "abort");
  EXPECT_EQ(FinishReasonName(v1::Finish::REASON_UNSPECIFIED), "");
}

}  // namespace
}  // namespace quire::cli
