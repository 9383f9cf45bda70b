// What a request may ask of the sampler beyond temperature, min-p, top-k and top-p: all cases of the reference, exact
// tables for the samplers that it lacks (tests/data/sampling/make_rules.py), and the fault cases of these.

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/philox.h"
#include "kernels/sampling.h"
#include "tests/kernels/special_floats.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// What a SampleRow points to.
struct Case {
  // Points into the case.
  SampleRow Row() {
    extras = {.banned_ids = banned,
              .rules = &rules,
              .tokens = tokens,
              .prompt_len = prompt_len,
              .mirostat_bound = mirostat_bound};
    SampleRow row = plain;
    row.more = &extras;
    return row;
  }

  std::vector<float> logits;
  SamplingRules rules;
  std::vector<int32_t> tokens, banned;
  int32_t prompt_len = 0;
  float mirostat_bound = 0;
  SampleRow plain;
  SampleExtras extras;
};

std::vector<uint32_t> BitsOf(const Json& ids, size_t vocab) {
  std::vector<uint32_t> bits((vocab + 31) / 32, 0);
  for (const int32_t id : ids) bits[id / 32] |= uint32_t{1} << (id % 32);
  return bits;
}

Case TextsOf(const Json& json) {
  Case c;
  for (const Json& value : json["logits"]) c.logits.push_back(value.is_null() ? -kInfinity : value.get<float>());
  c.tokens = json["prompt_ids"].get<std::vector<int32_t>>();
  c.prompt_len = static_cast<int32_t>(c.tokens.size());
  const auto output = json["output_ids"].get<std::vector<int32_t>>();
  c.tokens.insert(c.tokens.end(), output.begin(), output.end());
  return c;
}

void ReadPlain(const Json& json, SampleRow* row) {
  row->temperature = json["temperature"].get<float>();
  row->min_p = json["min_p"].get<float>();
  row->top_k = json["top_k"].get<int32_t>();
  row->top_p = json["top_p"].get<float>();
}

// A line of ref/sampling.jsonl.
Case ReadReference(const Json& json) {
  Case c = TextsOf(json);
  const Json& params = json["params"];
  ReadPlain(params, &c.plain);
  if (json["output_ids"].size() < params["min_tokens"].get<size_t>()) {
    c.banned = params["stop_token_ids"].get<std::vector<int32_t>>();
  }
  SamplingRules& rules = c.rules;
  if (!params["allowed_token_ids"].is_null()) rules.allowed_ids = BitsOf(params["allowed_token_ids"], c.logits.size());
  rules.bad_words = params["bad_words_token_ids"].get<std::vector<std::vector<int32_t>>>();
  for (const auto& [id, bias] : params["logit_bias"].items()) {
    rules.logit_bias.push_back({std::stoi(id), bias.get<float>()});
  }
  rules.repetition_penalty = params["repetition_penalty"].get<float>();
  rules.frequency_penalty = params["frequency_penalty"].get<float>();
  rules.presence_penalty = params["presence_penalty"].get<float>();
  rules.typical_p = params.value("typical_p", 1.0f);
  return c;
}

// A line of tests/data/sampling/rules.jsonl.
Case ReadTable(const Json& json) {
  Case c = TextsOf(json);
  ReadPlain(json, &c.plain);
  c.mirostat_bound = json["mirostat_bound"].get<float>();
  const Json& in = json["rules"];
  SamplingRules& rules = c.rules;
  const auto read = [&in](const char* name, auto* out) {
    if (in.contains(name)) *out = in[name].get<std::remove_reference_t<decltype(*out)>>();
  };
  for (const Json& bias : in.value("logit_bias", Json::array())) {
    rules.logit_bias.push_back({bias[0].get<int32_t>(), bias[1].get<float>()});
  }
  read("repetition_penalty", &rules.repetition_penalty);
  read("frequency_penalty", &rules.frequency_penalty);
  read("presence_penalty", &rules.presence_penalty);
  read("repeat_last_n", &rules.repeat_last_n);
  read("dry_multiplier", &rules.dry_multiplier);
  read("dry_base", &rules.dry_base);
  read("dry_allowed_length", &rules.dry_allowed_length);
  read("dry_last_n", &rules.dry_last_n);
  if (in.contains("dry_breakers")) rules.dry_breakers = BitsOf(in["dry_breakers"], c.logits.size());
  read("no_repeat_ngram_size", &rules.no_repeat_ngram_size);
  read("top_n_sigma", &rules.top_n_sigma);
  read("dynatemp_range", &rules.dynatemp_range);
  read("dynatemp_exponent", &rules.dynatemp_exponent);
  read("typical_p", &rules.typical_p);
  read("xtc_probability", &rules.xtc_probability);
  read("xtc_threshold", &rules.xtc_threshold);
  read("mirostat_tau", &rules.mirostat_tau);
  read("mirostat_eta", &rules.mirostat_eta);
  return c;
}

// Within 1e-5 and the same survivors. Those with less than 1e-37 are none of ours: weights are f32, and a draw has 24
// bits.
bool Near(const std::vector<double>& actual, const std::vector<double>& expected) {
  if (actual.size() != expected.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) > 1e-5 || (actual[i] > 1e-37) != (expected[i] > 1e-37)) return false;
  }
  return true;
}

// `probs` with only the first `keep` of the tied `ids` left, renormalised.
std::vector<double> KeepTied(std::vector<double> probs, const Json& tie) {
  const auto ids = tie["ids"].get<std::vector<int>>();
  const auto keep = tie["keep"].get<size_t>();
  double tied = 0, sum = 0;
  for (const int id : ids) tied = std::max(tied, probs[id]);
  for (size_t i = 0; i < ids.size(); ++i) probs[ids[i]] = i < keep ? tied : 0;
  for (const double p : probs) sum += p;
  for (double& p : probs) p /= sum;
  return probs;
}

bool IsExpected(const std::vector<double>& actual, const Json& json) {
  const auto expected = json["probs"].get<std::vector<double>>();
  if (Near(actual, expected)) return true;
  if (json.contains("alt_probs") && Near(actual, json["alt_probs"].get<std::vector<double>>())) return true;
  return json.contains("tie_at_top_k") && Near(actual, KeepTied(expected, json["tie_at_top_k"]));
}

class SamplingRulesTest : public ::testing::Test {
 protected:
  // The token of one row, with its log-probabilities in logprobs_.
  SampledToken Sample(const std::vector<float>& logits, const SampleRow& row) {
    SampledToken token;
    std::vector<float> copy = logits;
    logprobs_.clear();
    SampleTokensParams params;
    params.logits = F32Matrix(copy.data(), 1, static_cast<int64_t>(copy.size()));
    params.rows = {&row, 1};
    params.sampled = {&token, 1};
    params.logprobs = &logprobs_;
    const absl::Status status = SampleTokens(params, pool_, {&scratch_, 1});
    EXPECT_TRUE(status.ok()) << status;
    return token;
  }

  // Tokens drawn from `logits` by 0, 1, ... as output positions.
  std::map<int32_t, int> Count(const std::vector<float>& logits, SampleRow row, int draws) {
    std::map<int32_t, int> counts;
    for (int i = 0; i < draws; ++i) {
      row.output_position = static_cast<uint32_t>(i);
      ++counts[Sample(logits, row).token_id];
    }
    return counts;
  }

  ThreadPool pool_{1};
  SamplingScratch scratch_;
  std::vector<TokenLogprob> logprobs_;
};

TEST_F(SamplingRulesTest, AllReferenceDistributions) {
  const auto path = testing::RefPath("sampling.jsonl");
  if (!path) GTEST_SKIP() << "no sampling.jsonl";
  const auto lines = testing::ReadJsonLines(*path);
  EXPECT_GE(lines.size(), 200u);
  for (const Json& json : lines) {
    SCOPED_TRACE(json["name"].get<std::string>());
    Case c = ReadReference(json);
    EXPECT_TRUE(IsExpected(FinalProbabilities(c.logits, c.Row()), json));
  }
}

TEST_F(SamplingRulesTest, ProcessedLogprobsOfTheReference) {
  const auto path = testing::RefPath("sampling.jsonl");
  if (!path) GTEST_SKIP() << "no sampling.jsonl";
  for (const Json& json : testing::ReadJsonLines(*path)) {
    SCOPED_TRACE(json["name"].get<std::string>());
    if (json.contains("alt_probs") || json.contains("tie_at_top_k") || json.contains("tie_at_top_p")) continue;
    Case c = ReadReference(json);
    SampleRow row = c.Row();
    row.num_logprobs = 20;
    row.wants_processed_logprobs = true;
    const SampledToken token = Sample(c.logits, row);
    const Json& expected = json["logprobs_processed"];
    ASSERT_EQ(token.logprobs_count, static_cast<int32_t>(expected.size()) + 1);
    EXPECT_EQ(logprobs_[0].token_id, token.token_id);
    if (token.rank <= 20) {
      EXPECT_EQ(expected[token.rank - 1][0].get<int32_t>(), token.token_id);
      EXPECT_EQ(logprobs_[token.rank].logprob, logprobs_[0].logprob);
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(logprobs_[i + 1].token_id, expected[i][0].get<int32_t>());
      const double logprob = expected[i][1].get<double>();
      EXPECT_NEAR(logprobs_[i + 1].logprob, logprob, std::max(1e-4, 1e-7 * std::abs(logprob)));  // f32 holds no more
    }
  }
}

TEST_F(SamplingRulesTest, ExactTables) {
  const auto lines = testing::ReadJsonLines(testing::SourcePath("tests/data/sampling/rules.jsonl"));
  EXPECT_GE(lines.size(), 100u);
  for (const Json& json : lines) {
    SCOPED_TRACE(json["name"].get<std::string>());
    Case c = ReadTable(json);
    EXPECT_TRUE(Near(FinalProbabilities(c.logits, c.Row()), json["probs"].get<std::vector<double>>()));
    if (!json.contains("next_bounds")) continue;
    const SampledToken token = Sample(c.logits, c.Row());
    const auto& bounds = json["next_bounds"];
    const auto bound =
        std::find_if(bounds.begin(), bounds.end(), [&](const Json& b) { return b[0] == token.token_id; });
    ASSERT_NE(bound, bounds.end());
    EXPECT_NEAR(token.mirostat_bound, (*bound)[1].get<double>(), 1e-5);
  }
}

// The mean surprise nears tau, in bits, whatever the bound begins with.
TEST_F(SamplingRulesTest, MirostatKeepsTheMeanSurprise) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -1.1f * std::log(static_cast<float>(i + 1));
  for (const float tau : {2.0f, 4.0f}) {
    SamplingRules rules;
    rules.mirostat_tau = tau;
    SampleExtras extras{.rules = &rules, .mirostat_bound = 2 * tau};
    SampleRow row{.temperature = 1, .seed = 3, .more = &extras};
    double sum = 0;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
      row.output_position = static_cast<uint32_t>(i);
      const SampledToken token = Sample(logits, row);
      sum += tau + (extras.mirostat_bound - token.mirostat_bound) / rules.mirostat_eta;
      extras.mirostat_bound = token.mirostat_bound;
    }
    EXPECT_NEAR(sum / kDraws, tau, 0.05);
  }
}

// Whether top choices are excluded is a draw of its own, with the given probability.
TEST_F(SamplingRulesTest, XtcAppliesWithItsProbability) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  SamplingRules rules;
  rules.xtc_probability = 0.25f;
  const SampleExtras extras{.rules = &rules};
  const std::map<int32_t, int> counts = Count(logits, {.temperature = 1, .seed = 5, .more = &extras}, 8000);
  EXPECT_NEAR(counts.at(0), 0.75 * 0.5 * 8000, 150);
  EXPECT_NEAR(counts.at(2), (0.25 + 0.75 * 0.2) * 8000, 150);
}

// Logits and rules change from row to row: nothing of one is left for the next.
TEST_F(SamplingRulesTest, RowsLeaveNothingBehind) {
  const auto lines = testing::ReadJsonLines(testing::SourcePath("tests/data/sampling/rules.jsonl"));
  std::vector<int32_t> first;
  for (const Json& json : lines) {
    Case c = ReadTable(json);
    SamplingScratch fresh;
    ComputeDistribution(c.logits, c.Row(), &fresh);
    ComputeDistribution(c.logits, c.Row(), &scratch_);  // after all others
    EXPECT_EQ(DrawToken(fresh.distribution, 0.37f), DrawToken(scratch_.distribution, 0.37f)) << json["name"];
  }
  EXPECT_TRUE(
      std::all_of(scratch_.rules.counts.begin(), scratch_.rules.counts.end(), [](int32_t c) { return c == 0; }));
}

TEST_F(SamplingRulesTest, RefusesRulesOfAnotherVocabulary) {
  std::vector<float> logits(40, 1.0f);
  const std::vector<int32_t> tokens = {1, 40};
  std::vector<SamplingRules> bad(6);
  bad[0].allowed_ids = {1};
  bad[1].dry_breakers = {1, 2, 3};
  bad[2].bad_words = {{1, 40}};
  bad[3].bad_words = {{}};
  bad[4].logit_bias = {{-1, 1.0f}};
  for (const SamplingRules& rules : bad) {
    SampleExtras extras{.rules = &rules};
    if (&rules == &bad[5]) extras.tokens = tokens;
    const SampleRow row{.more = &extras};
    SampledToken token;
    SampleTokensParams params;
    params.logits = F32Matrix(logits.data(), 1, 40);
    params.rows = {&row, 1};
    params.sampled = {&token, 1};
    EXPECT_EQ(SampleTokens(params, pool_, {&scratch_, 1}).code(), absl::StatusCode::kInvalidArgument);
  }
}

// B059: -inf logits, greedy and random rows side by side.
TEST_F(SamplingRulesTest, B059GreedyRowsNextToRandomOnesStayFinite) {
  std::vector<float> logits;
  for (int r = 0; r < 4; ++r) logits.insert(logits.end(), {-kInfinity, 1, -kInfinity, 3, 2, -kInfinity});
  SamplingRules rules;
  rules.bad_words = {{3}};
  rules.repetition_penalty = 1.5f;
  const int32_t banned[] = {4};
  const std::vector<int32_t> tokens = {0, 2, 5};  // their logits are -inf
  const SampleExtras bans{.banned_ids = banned}, ruled{.rules = &rules, .tokens = tokens};
  const std::vector<SampleRow> rows = {{.logits_row = 0},
                                       {.logits_row = 1, .temperature = 1, .num_logprobs = 3, .more = &bans},
                                       {.logits_row = 2, .num_logprobs = 3, .more = &ruled},
                                       {.logits_row = 3, .temperature = 0.7f, .more = &ruled}};
  std::vector<SampledToken> sampled(rows.size());
  SampleTokensParams params;
  params.logits = F32Matrix(logits.data(), 4, 6);
  params.rows = rows;
  params.sampled = absl::MakeSpan(sampled);
  params.logprobs = &logprobs_;
  ASSERT_TRUE(SampleTokens(params, pool_, {&scratch_, 1}).ok());
  EXPECT_EQ(sampled[0].token_id, 3);
  EXPECT_TRUE(sampled[1].token_id == 1 || sampled[1].token_id == 3);
  EXPECT_EQ(sampled[2].token_id, 4);
  EXPECT_TRUE(sampled[3].token_id == 1 || sampled[3].token_id == 4);
  for (const TokenLogprob& entry : logprobs_) EXPECT_TRUE(std::isfinite(entry.logprob));
}

// B066: the smallest set whose sum reaches p.
TEST_F(SamplingRulesTest, B066NucleusEdge) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.1f), std::log(0.1f)};
  const auto survivors = [&](float top_p) {
    const std::vector<double> probs = FinalProbabilities(logits, {.temperature = 1, .top_p = top_p});
    return std::count_if(probs.begin(), probs.end(), [](double p) { return p > 0; });
  };
  EXPECT_EQ(survivors(0.4999f), 1);
  EXPECT_EQ(survivors(0.7999f), 2);
  EXPECT_EQ(survivors(0.80001f), 3);
  EXPECT_EQ(survivors(0.95f), 4);
  EXPECT_EQ(survivors(1.0f), 4);
}

// B067: filters combine without emptying the set.
TEST_F(SamplingRulesTest, B067FiltersNeverEmptyTheSet) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 400; ++round) {
    std::vector<float> logits(50);
    for (float& logit : logits) logit = normal(random);
    SamplingRules rules;
    const auto either = [&random](float off, float on) { return random() % 2 == 0 ? off : on; };
    rules.top_n_sigma = either(0, 0.01f);
    rules.dynatemp_range = either(0, 5);
    rules.typical_p = either(1, 0.001f);
    rules.xtc_probability = either(0, 1);
    rules.xtc_threshold = either(0.5f, 1e-6f);
    rules.mirostat_tau = either(0, 0.001f);
    const SampleExtras extras{.rules = &rules};
    SampleRow row{.temperature = either(0.01f, 1000), .more = &extras};
    row.min_p = either(0, 1);
    row.top_k = static_cast<int32_t>(random() % 3);
    row.top_p = either(1, 1e-6f);
    const std::vector<double> probs = FinalProbabilities(logits, row);
    double sum = 0;
    for (const double p : probs) sum += p;
    ASSERT_NEAR(sum, 1, 1e-6);
  }
}

// B075: the history is that of each step.
TEST_F(SamplingRulesTest, B075SecondStepPenalizesTheFirstToken) {
  const std::vector<float> logits = {1, 4, 3, 0};
  SamplingRules rules;
  rules.repetition_penalty = 2;
  std::vector<int32_t> tokens = {0};
  for (const int32_t expected : {1, 2, 1, 1}) {
    const SampleExtras extras{.rules = &rules, .tokens = tokens, .prompt_len = 1};
    const SampledToken token = Sample(logits, {.more = &extras});
    EXPECT_EQ(token.token_id, expected);
    tokens.push_back(token.token_id);
  }
}

// B076: the last N tokens, none of the first ones.
TEST_F(SamplingRulesTest, B076WindowIsTheLastTokens) {
  std::vector<int32_t> tokens(100);
  for (int32_t i = 0; i < 100; ++i) tokens[i] = i;
  const std::vector<float> logits(100, 1.0f);
  SamplingRules rules;
  rules.repetition_penalty = 4;
  rules.frequency_penalty = 1;
  rules.repeat_last_n = 10;
  for (const size_t length : {100u, 11u, 10u, 9u, 1u, 0u}) {
    const SampleExtras extras{.rules = &rules, .tokens = absl::MakeConstSpan(tokens).first(length)};
    const std::vector<double> probs = FinalProbabilities(logits, {.temperature = 1, .more = &extras});
    for (int32_t i = 0; i < 100; ++i) {
      const bool seen = i < static_cast<int32_t>(length) && i >= static_cast<int32_t>(length) - 10;
      EXPECT_EQ(probs[i] < 0.01 * 0.9, seen) << i << " of " << length;
    }
  }
}

// B077: one meaning at every temperature: descending, sum at most 1, the greedy choice first.
TEST_F(SamplingRulesTest, B077LogprobsAreOrderedAtTemperatureZero) {
  const std::vector<float> logits = {2, 5, 5, 1, -kInfinity, 3};
  for (const bool processed : {false, true}) {
    const SampledToken token =
        Sample(logits, {.temperature = 0, .top_k = 1, .num_logprobs = 10, .wants_processed_logprobs = processed});
    EXPECT_EQ(token.token_id, 1);
    EXPECT_EQ(token.rank, 1);
    EXPECT_EQ(logprobs_[1].token_id, 1);
    double sum = 0;
    for (int32_t i = 1; i < token.logprobs_count; ++i) {
      sum += std::exp(logprobs_[i].logprob);
      EXPECT_TRUE(i == 1 || logprobs_[i].logprob <= logprobs_[i - 1].logprob);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

// B080: min-p looks at probabilities behind the temperature; a high temperature makes all equal.
TEST_F(SamplingRulesTest, B080TemperatureComesBeforeMinP) {
  const std::vector<float> logits = {0, -2, -4, -6};
  const auto survivors = [&](float temperature) {
    const std::vector<double> probs = FinalProbabilities(logits, {.temperature = temperature, .min_p = 0.1f});
    return std::count_if(probs.begin(), probs.end(), [](double p) { return p > 0; });
  };
  EXPECT_EQ(survivors(1), 2);  // 1, 0.135, 0.018, 0.002
  EXPECT_EQ(survivors(2), 3);  // 1, 0.368, 0.135, 0.050
  for (const double p : FinalProbabilities(logits, {.temperature = 1e6f})) EXPECT_NEAR(p, 0.25, 1e-5);
}

// The number of a token is that of (seed, sequence, position, purpose): not of what stands beside it.
TEST_F(SamplingRulesTest, PurposesHaveNumbersOfTheirOwn) {
  EXPECT_NE(UniformFloat(1, 2, 3, RandomPurpose::kDraw), UniformFloat(1, 2, 3, RandomPurpose::kXtc));
}

}  // namespace
}  // namespace quire
