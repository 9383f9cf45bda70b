#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/grpc/convert.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

GenerateRequest Read(const std::string& text) {
  v1::GenerateRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return FromProto(request);
}

TEST(GrpcConvertTest, EverySamplerOfTheMessageIsRead) {
  const GenerateRequest request = Read(R"(
    sampling {
      repetition_penalty: 1.5 frequency_penalty: 0.25 presence_penalty: -0.5 repeat_last_n: 7
      logit_bias { key: 3 value: -100 } logit_bias { key: 4 value: 2 }
      allowed_token_ids: [1, 2] bad_words: "x" bad_words: "y z" no_repeat_ngram_size: 4
      dry { multiplier: 0.75 base: 2 allowed_length: 3 last_n: 50 sequence_breakers: "!" }
      top_n_sigma: 1.25 dynamic_temperature { range: 0.5 exponent: 2 } typical_p: 0.9
      xtc { probability: 0.5 threshold: 0.25 } mirostat { tau: 3 eta: 0.5 }
    }
    stopping { repetition_detection { max_pattern_size: 8 min_pattern_size: 2 min_count: 3 } }
    output { logprobs_mode: LOGPROBS_MODE_PROCESSED echo: true }
    truncate_prompt_tokens: -1 truncation_side: TRUNCATION_SIDE_RIGHT num_speculative_tokens: 0)");
  const RulesRequest& rules = request.rules;
  EXPECT_EQ(rules.repetition_penalty, 1.5f);
  EXPECT_EQ(rules.frequency_penalty, 0.25f);
  EXPECT_EQ(rules.presence_penalty, -0.5f);
  EXPECT_EQ(rules.repeat_last_n, 7);
  EXPECT_THAT(rules.logit_bias, UnorderedElementsAre(Pair(3, -100.0f), Pair(4, 2.0f)));
  EXPECT_THAT(rules.allowed_token_ids, ElementsAre(1, 2));
  EXPECT_THAT(rules.bad_words, ElementsAre("x", "y z"));
  EXPECT_EQ(rules.no_repeat_ngram_size, 4);
  EXPECT_EQ(rules.dry_multiplier, 0.75f);
  EXPECT_EQ(rules.dry_base, 2.0f);
  EXPECT_EQ(rules.dry_allowed_length, 3);
  EXPECT_EQ(rules.dry_last_n, 50);
  EXPECT_THAT(rules.dry_sequence_breakers, ElementsAre("!"));
  EXPECT_EQ(rules.top_n_sigma, 1.25f);
  EXPECT_EQ(rules.dynatemp_range, 0.5f);
  EXPECT_EQ(rules.dynatemp_exponent, 2.0f);
  EXPECT_EQ(rules.typical_p, 0.9f);
  EXPECT_EQ(rules.xtc_probability, 0.5f);
  EXPECT_EQ(rules.xtc_threshold, 0.25f);
  EXPECT_TRUE(rules.mirostat);
  EXPECT_EQ(rules.mirostat_tau, 3.0f);
  EXPECT_EQ(rules.mirostat_eta, 0.5f);
  ASSERT_TRUE(request.repetition_detection.has_value());
  EXPECT_EQ(request.repetition_detection->max_pattern_size, 8);
  EXPECT_EQ(request.repetition_detection->min_pattern_size, 2);
  EXPECT_EQ(request.repetition_detection->min_count, 3);
  EXPECT_EQ(request.logprobs_mode, 2);
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.truncate_prompt_tokens, -1);
  EXPECT_EQ(request.truncation_side, 2);
  EXPECT_EQ(request.num_speculative_tokens, 0);
}

TEST(GrpcConvertTest, WhatIsUnsetStaysUnset) {
  const GenerateRequest request = Read("sampling { dry {} dynamic_temperature {} xtc {} }");
  const RulesRequest& rules = request.rules;
  for (const auto& value : {rules.repetition_penalty, rules.frequency_penalty, rules.presence_penalty, rules.dry_base,
                            rules.top_n_sigma, rules.dynatemp_exponent, rules.typical_p, rules.xtc_threshold}) {
    EXPECT_FALSE(value.has_value());
  }
  EXPECT_EQ(rules.dry_multiplier, 0.0f);
  EXPECT_FALSE(rules.mirostat || rules.dry_allowed_length || request.repetition_detection || request.echo);
  EXPECT_FALSE(request.truncate_prompt_tokens.has_value());
  EXPECT_FALSE(request.num_speculative_tokens.has_value());
  EXPECT_EQ(request.logprobs_mode, 0);
}

TEST(GrpcConvertTest, AnEndByRepetitionAndTheEchoAreWritten) {
  OutputDelta delta;
  delta.prompt = PromptInfo{2, 5, {}, "ab", {97, 98}};
  delta.sequences.resize(1);
  delta.sequences[0].finish.emplace().reason = FinishReason::kRepetition;
  v1::GenerateResponse response;
  ToProto("id", delta, &response);
  EXPECT_EQ(response.prompt().text(), "ab");
  EXPECT_THAT(response.prompt().token_ids(), ElementsAre(97, 98));
  EXPECT_EQ(response.sequences(0).finish().reason(), v1::Finish::REASON_REPETITION);
}

TEST(GrpcConvertTest, WhatWasDraftedAndAcceptedIsWritten) {
  OutputDelta delta;
  delta.usage = Usage{.completion_tokens = 9, .drafted_tokens = 7, .accepted_tokens = 5};
  v1::GenerateResponse response;
  ToProto("id", delta, &response);
  EXPECT_EQ(response.usage().drafted_tokens(), 7u);
  EXPECT_EQ(response.usage().accepted_tokens(), 5u);
  EngineStats stats;
  stats.drafting_steps = 3;
  stats.drafted_tokens = 17;
  stats.accepted_tokens = 11;
  v1::GetStatsResponse answer;
  ToProto(stats, absl::Seconds(1), /*streams_stalled=*/0, &answer);
  EXPECT_EQ(answer.drafting_steps(), 3u);
  EXPECT_EQ(answer.drafted_tokens(), 17u);
  EXPECT_EQ(answer.accepted_tokens(), 11u);
}

}  // namespace
}  // namespace quire
