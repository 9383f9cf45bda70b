// What the fields of a request do to how tokens are chosen and scored, on the simulated model.

#include <string>

#include "gtest/gtest.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using ::quire::testing::HttpClient;
using ::quire::testing::ParseSse;

class HttpSamplersTest : public testing::HttpCompletionsTest {};

// Each as it acts: the simulated model samples by rules as any other does.
TEST_F(HttpSamplersTest, SamplersOfTheRequestAct) {
  Load();
  const auto text = [this](const char* fields) {
    json request = {{"temperature", 0}, {"max_tokens", 3}};
    request.update(json::parse(fields));
    return TextOf(Complete(request));
  };
  EXPECT_EQ(text(R"({"logit_bias": {"65": 100}})"), "AAA");
  EXPECT_EQ(text(R"({"allowed_token_ids": [66], "temperature": 1})"), "BBB");
  EXPECT_EQ(text(R"({"logit_bias": {"65": 100, "66": 60}, "bad_words": ["A"]})"), "BBB");
  EXPECT_EQ(text(R"({"logit_bias": {"65": 100, "66": 60}, "bad_words": ["AA"]})"), "ABA");
  EXPECT_EQ(text(R"({"logit_bias": {"65": 100}, "no_repeat_ngram_size": 2})").substr(0, 2), "AA");
  EXPECT_NE(text(R"({"logit_bias": {"65": 100}, "no_repeat_ngram_size": 2})"), "AAA");
  const std::string both = text(R"({"logit_bias": {"65": 100, "66": 100}, "repetition_penalty": 100})");
  EXPECT_TRUE(both.substr(0, 2) == "AB" || both.substr(0, 2) == "BA") << both;
  EXPECT_EQ(text(R"({"allowed_token_ids": [65, 66], "logit_bias": {"65": 30, "66": 28}, "frequency_penalty": 2,
                     "presence_penalty": 2, "prompt": "AB"})")
                .size(),
            3u);
  EXPECT_EQ(text(R"({"logit_bias": {"65": 100}, "dry_multiplier": 100, "dry_allowed_length": 1})").substr(0, 1), "A");
  for (const char* const fields :
       {R"({"top_n_sigma": 0.01, "temperature": 1})", R"({"top_k": 1, "temperature": 1, "xtc_probability": 0.5})",
        R"({"typical_p": 1, "top_n_sigma": 0})"}) {
    EXPECT_EQ(text(fields), text("{}")) << fields;
  }
  EXPECT_EQ(text(R"({"mirostat": 2, "mirostat_tau": 3, "temperature": 1})"),
            text(R"({"mirostat": 2, "mirostat_tau": 3, "temperature": 1})"));
  EXPECT_FALSE(text(R"({"use_beam_search": true, "n": 2})").empty());
}

// B081: a request without a seed draws one of its own, and can be made again from the answer.
TEST_F(HttpSamplersTest, B081_ASeedThatWasDrawnIsReturnedAndMakesTheAnswerAgain) {
  Load();
  const json open = {{"seed", nullptr}, {"temperature", 1}, {"max_tokens", 24}, {"n", 2}};
  const json choices = Complete(open).json()["choices"];
  const json again = Complete(open).json()["choices"];
  EXPECT_NE(choices[0]["seed"], again[0]["seed"]);
  EXPECT_NE(choices[0]["text"], again[0]["text"]);
  ASSERT_TRUE(choices[0]["seed"].is_number_integer());
  EXPECT_EQ(choices[0]["seed"], choices[1]["seed"]) << "one request, one seed";
  EXPECT_LT(choices[0]["seed"].get<int64_t>(), int64_t{1} << 53);
  json seeded = open;
  seeded["seed"] = choices[0]["seed"];
  EXPECT_EQ(Complete(seeded).json()["choices"], choices);

  json streamed = open;
  streamed["stream"] = true;
  json texts = {"", ""}, seeds = {nullptr, nullptr};
  for (const json& event : ParseSse(Complete(streamed).body).objects) {
    const json& part = event["choices"][0];
    const auto index = part["index"].get<size_t>();
    EXPECT_EQ(part.contains("seed"), seeds[index].is_null()) << "with the first part alone";
    if (part.contains("seed")) seeds[index] = part["seed"];
    texts[index] = texts[index].get<std::string>() + part["text"].get<std::string>();
  }
  seeded["seed"] = seeds[0];
  const json whole = Complete(seeded).json()["choices"];
  for (size_t i : {0, 1}) EXPECT_EQ(whole[i]["text"], texts[i]);

  const json several = Complete({{"seed", nullptr}, {"prompt", {"a", "b"}}}).json()["choices"];
  EXPECT_NE(several[0]["seed"], several[1]["seed"]) << "each prompt has its own";
  EXPECT_EQ(Complete({{"seed", -3}}).json()["choices"][0]["seed"], -3);
}

TEST_F(HttpSamplersTest, ARequestThatMayHaveNoTokenEndsAloneAndForGood) {
  Load();
  const HttpClient::Reply reply =
      Complete({{"allowed_token_ids", {65}}, {"no_repeat_ngram_size", 1}, {"max_tokens", 2}});
  EXPECT_EQ(reply.status, 500);
  EXPECT_EQ(reply.headers.at("x-should-retry"), "false");
  EXPECT_EQ(Complete({}).status, 200);
}

TEST_F(HttpSamplersTest, ARunOfTheSameTokensEndsIt) {
  Load();
  const json choice = Complete({{"logit_bias", {{"65", 100}}},
                                {"temperature", 0},
                                {"repetition_detection", {{"max_pattern_size", 2}, {"min_count", 4}}}})
                          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "AAAA");
  EXPECT_EQ(choice["finish_reason"], "repetition");
}

TEST_F(HttpSamplersTest, LogprobsOfThePromptAndOfWhatIsDrawn) {
  Load();
  const json choice = Complete({{"prompt", "ab"}, {"prompt_logprobs", 2}}).json()["choices"][0];
  ASSERT_EQ(choice["prompt_logprobs"].size(), 3u);  // <bos> a b
  EXPECT_TRUE(choice["prompt_logprobs"][0].is_null());
  const json& a = choice["prompt_logprobs"][1];
  EXPECT_TRUE(a.size() == 3 || (a.size() == 2 && a[std::to_string('a')]["rank"] <= 2)) << a;
  EXPECT_EQ(a[std::to_string('a')]["decoded_token"], "a");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const json drawn = Complete({{"allowed_token_ids", {65}}, {"logprobs", 5}, {"logprobs_mode", "processed_logprobs"}})
                         .json()["choices"][0]["logprobs"];
  EXPECT_EQ(drawn["top_logprobs"][0], json::parse(R"({"A": 0.0})"));
  const json raw = Complete({{"allowed_token_ids", {65}}, {"logprobs", 5}}).json()["choices"][0]["logprobs"];
  EXPECT_GE(raw["top_logprobs"][0].size(), 5u);
  EXPECT_LT(raw["token_logprobs"][0], 0.0);
}

// B085: stops of several tokens cut a stream as they cut a whole answer.
TEST_F(HttpSamplersTest, B085StopsCutStreamsAndWholeAnswersAlike) {
  Load();
  for (int seed = 0; seed < 12; ++seed) {
    const json open = {{"seed", seed}, {"max_tokens", 40}, {"allowed_token_ids", {65, 66, 67, 10, 32}}};
    const std::string text = TextOf(Complete(open));
    ASSERT_EQ(text.size(), 40u);
    for (const size_t at : {0u, 7u, 20u, 35u}) {
      json request = open;
      request["stop"] = {"never", text.substr(at, 5)};
      request["include_stop_str_in_output"] = seed % 2 == 0;
      const HttpClient::Reply whole = Complete(request);
      request["stream"] = true;
      std::string streamed;
      for (const json& event : ParseSse(Complete(request).body).objects)
        streamed += event["choices"][0]["text"].get<std::string>();
      EXPECT_EQ(streamed, TextOf(whole));
      EXPECT_EQ(whole.json()["choices"][0]["stop_reason"], text.substr(at, 5));
      EXPECT_EQ(streamed, text.substr(0, text.find(text.substr(at, 5)) + (seed % 2 == 0 ? 5 : 0)));
    }
  }
}

}  // namespace
}  // namespace quire
