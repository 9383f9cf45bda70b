// Speculation as clients see it: answers that stay as they are, a switch, and what was accepted.

#include <string>

#include "gtest/gtest.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using ::quire::testing::HttpClient;
using ::quire::testing::ParseSse;

class HttpSpeculationTest : public testing::HttpCompletionsTest {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.scheduler.speculation = SpeculationMode::kNgram;
    return options;
  }
  HttpSpeculationTest() : HttpCompletionsTest(Options()) { Load(); }

  // One letter, or two, so that the text repeats itself.
  static json Fields(json fields) {
    json all = {{"allowed_token_ids", {65, 66}}, {"max_tokens", 200}, {"logprobs", 1}};
    all.update(fields);
    return all;
  }
};

TEST_F(HttpSpeculationTest, AnswersAreTheSameAndUsageSaysWhatWasAccepted) {
  for (const json& kind :
       {json{{"temperature", 0}}, json{{"temperature", 1}, {"n", 2}},
        json{{"temperature", 0}, {"stop", "ABB"}, {"logit_bias", {{"65", 1}}}},
        json{{"temperature", 0.5}, {"frequency_penalty", 0.1}, {"structured_outputs", {{"regex", "[AB]{150}"}}}}}) {
    SCOPED_TRACE(kind.dump());
    json fields = Fields(kind);
    const HttpClient::Reply with = Complete(fields);
    fields["num_speculative_tokens"] = 0;
    const HttpClient::Reply without = Complete(fields);
    ASSERT_EQ(with.status, 200) << with.body;
    ASSERT_EQ(without.status, 200) << without.body;
    EXPECT_EQ(with.json()["choices"], without.json()["choices"]);
    json usage = with.json()["usage"];
    const json details = usage["completion_tokens_details"];
    usage.erase("completion_tokens_details");
    json expected = without.json()["usage"];
    usage.erase("prompt_tokens_details"), expected.erase("prompt_tokens_details");  // the second one found the prompt
    EXPECT_EQ(usage, expected) << "and drafts are mentioned only where there were some";
    if (usage["completion_tokens"] < 50) continue;
    EXPECT_GE(details["accepted_prediction_tokens"], 1) << details;
    EXPECT_GE(details["rejected_prediction_tokens"], 0) << details;
  }
}

// How many are drafted depends on what steps take, which is measured.
TEST_F(HttpSpeculationTest, AStreamEndsWithTheUsage) {
  json fields = Fields({{"temperature", 0}, {"allowed_token_ids", {65}}});
  fields["stream"] = true;
  fields["stream_options"] = {{"include_usage", true}};
  const auto events = ParseSse(Complete(fields).body);
  const json& usage = events.objects.back()["usage"];
  EXPECT_GT(usage["completion_tokens_details"]["accepted_prediction_tokens"], 100);
  EXPECT_EQ(usage["completion_tokens_details"]["rejected_prediction_tokens"], 0);
  std::string text;
  for (const json& event : events.objects) {
    if (!event["choices"].empty()) text += event["choices"][0]["text"];
  }
  EXPECT_EQ(text, std::string(200, 'A'));
}

TEST_F(HttpSpeculationTest, TheSwitchHasARange) {
  for (const int tokens : {-1, 65}) {
    const HttpClient::Reply reply = Complete({{"num_speculative_tokens", tokens}});
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["param"], "num_speculative_tokens") << reply.body;
  }
  EXPECT_EQ(Complete({{"num_speculative_tokens", 64}}).status, 200);
  EXPECT_EQ(Complete({{"num_speculative_tokens", nullptr}}).status, 200);
}

}  // namespace
}  // namespace quire
