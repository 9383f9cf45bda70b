#include "server/frontend/sampling_rules_check.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/frontend/errors.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using ::quire::testing::FakeTokenizer;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kVocab = 270;

absl::StatusOr<CheckedRules> Check(const RulesRequest& request, std::optional<float> penalty = std::nullopt) {
  return CheckSamplingRules(request, kVocab, penalty);
}

struct BadCase {
  std::string field, limit;
  std::function<void(RulesRequest&)> spoil;
};

TEST(SamplingRulesCheckTest, RefusesEveryFieldOutOfRangeNamingFieldAndLimit) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<BadCase> cases = {
      {"sampling.repetition_penalty", "(0, 100]", [](auto& r) { r.repetition_penalty = 0; }},
      {"sampling.repetition_penalty", "(0, 100]", [=](auto& r) { r.repetition_penalty = nan; }},
      {"sampling.frequency_penalty", "[-2, 2]", [](auto& r) { r.frequency_penalty = 2.1f; }},
      {"sampling.presence_penalty", "[-2, 2]", [=](auto& r) { r.presence_penalty = -inf; }},
      {"sampling.repeat_last_n", "[0, 2147483647]", [](auto& r) { r.repeat_last_n = -1; }},
      {"sampling.logit_bias", "[0, 269]",
       [](auto& r) {
         r.logit_bias = {{270, 1.0f}};
       }},
      {"sampling.logit_bias[3]", "[-100, 100]",
       [](auto& r) {
         r.logit_bias = {{3, 100.5f}};
       }},
      {"sampling.logit_bias", "twice",
       [](auto& r) {
         r.logit_bias = {{3, 1.0f}, {3, 2.0f}};
       }},
      {"sampling.logit_bias", "1024", [](auto& r) { r.logit_bias.resize(1025); }},
      {"sampling.allowed_token_ids[1]", "[0, 269]",
       [](auto& r) {
         r.allowed_token_ids = {0, -1};
       }},
      {"sampling.bad_words", "256", [](auto& r) { r.bad_words.resize(257, "x"); }},
      {"sampling.bad_words[1]", "256",
       [](auto& r) {
         r.bad_words = {"x", std::string(257, 'x')};
       }},
      {"sampling.bad_words[0]", "UTF-8", [](auto& r) { r.bad_words = {"\xFF"}; }},
      {"sampling.no_repeat_ngram_size", "[0, 1024]", [](auto& r) { r.no_repeat_ngram_size = 1025; }},
      {"sampling.dry.multiplier", "[0, 100]", [](auto& r) { r.dry_multiplier = -1; }},
      {"sampling.dry.base", "[1, 100]", [](auto& r) { r.dry_base = 0.9f; }},
      {"sampling.dry.allowed_length", "[1, 1024]", [](auto& r) { r.dry_allowed_length = 0; }},
      {"sampling.dry.last_n", "[0, 2147483647]", [](auto& r) { r.dry_last_n = int64_t{1} << 31; }},
      {"sampling.dry.sequence_breakers", "16", [](auto& r) { r.dry_sequence_breakers.resize(17, "x"); }},
      {"sampling.dry.sequence_breakers[0]", "40", [](auto& r) { r.dry_sequence_breakers = {""}; }},
      {"sampling.top_n_sigma", "finite and at least 0", [=](auto& r) { r.top_n_sigma = inf; }},
      {"sampling.dynamic_temperature.range", "finite and at least 0", [](auto& r) { r.dynatemp_range = -1; }},
      {"sampling.dynamic_temperature.exponent", "(0, 100]", [](auto& r) { r.dynatemp_exponent = 0; }},
      {"sampling.typical_p", "(0, 1]", [](auto& r) { r.typical_p = 1.1f; }},
      {"sampling.xtc.probability", "[0, 1]", [](auto& r) { r.xtc_probability = 2; }},
      {"sampling.xtc.threshold", "(0, 0.5]", [](auto& r) { r.xtc_threshold = 0.6f; }},
      {"sampling.mirostat.tau", "(0, 100]", [](auto& r) { r.mirostat_tau = 0; }},
      {"sampling.mirostat.eta", "(0, 1]", [](auto& r) { r.mirostat_eta = 1.5f; }},
  };
  for (const BadCase& c : cases) {
    RulesRequest request;
    c.spoil(request);
    const absl::Status status = Check(request).status();
    EXPECT_EQ(FieldOf(status), c.field) << status;
    EXPECT_NE(status.message().find(c.limit), absl::string_view::npos) << status;
  }
}

// B069: neutral values mean off everywhere.
TEST(SamplingRulesCheckTest, B069NeutralValuesAreNoRules) {
  RulesRequest neutral;
  neutral.repetition_penalty = 1;
  neutral.frequency_penalty = neutral.presence_penalty = 0;
  neutral.repeat_last_n = 0;
  neutral.logit_bias = {{5, 0.0f}};
  neutral.no_repeat_ngram_size = 0;
  neutral.dry_multiplier = neutral.top_n_sigma = neutral.dynatemp_range = neutral.xtc_probability = 0;
  neutral.typical_p = 1;
  neutral.mirostat_tau = 4;  // of a mirostat that is off
  const auto checked = Check(neutral);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_FALSE(checked->any());
  EXPECT_THAT(checked->breakers, IsEmpty());
}

TEST(SamplingRulesCheckTest, TheModelsRepetitionPenaltyIsADefault) {
  EXPECT_EQ(Check({}, 1.25f)->rules.repetition_penalty, 1.25f);
  RulesRequest own;
  own.repetition_penalty = 1;
  EXPECT_FALSE(Check(own, 1.25f)->any());
}

TEST(SamplingRulesCheckTest, WordsAreMeantWithAndWithoutASpace) {
  const FakeTokenizer tokenizer;
  RulesRequest request;
  request.bad_words = {"no", "  x"};
  const auto rules = ResolveSamplingRules(*Check(request), tokenizer, kVocab);
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_THAT(rules->bad_words,
              ElementsAre(ElementsAre('n', 'o'), ElementsAre(' ', 'n', 'o'), ElementsAre('x'), ElementsAre(' ', 'x')));
  request.bad_words = {"   "};
  EXPECT_EQ(FieldOf(ResolveSamplingRules(*Check(request), tokenizer, kVocab).status()), "sampling.bad_words[0]");
  request.bad_words = {"z"};  // a model of fewer ids than its tokenizer
  EXPECT_EQ(FieldOf(ResolveSamplingRules(*Check(request), tokenizer, 'y').status()), "sampling.bad_words[0]");
}

TEST(SamplingRulesCheckTest, BreakersAreAllTokensThatHoldOne) {
  const FakeTokenizer tokenizer({"a:\n", "ab", "::"});
  RulesRequest request;
  request.dry_multiplier = 1;
  const auto is_breaker = [](const SamplingRules& rules, int32_t id) {
    return (rules.dry_breakers[id / 32] >> (id % 32) & 1) != 0;
  };
  const SamplingRules usual = *ResolveSamplingRules(*Check(request), tokenizer, kVocab);
  EXPECT_EQ(usual.dry_breakers.size(), 9u);
  for (const int32_t id : {int32_t{'\n'}, int32_t{':'}, int32_t{'"'}, int32_t{'*'}, FakeTokenizer::kFirstPiece,
                           FakeTokenizer::kFirstPiece + 2}) {
    EXPECT_TRUE(is_breaker(usual, id)) << id;
  }
  EXPECT_FALSE(is_breaker(usual, 'a'));
  EXPECT_FALSE(is_breaker(usual, FakeTokenizer::kFirstPiece + 1));
  request.dry_sequence_breakers = {"b"};
  const SamplingRules own = *ResolveSamplingRules(*Check(request), tokenizer, kVocab);
  EXPECT_TRUE(is_breaker(own, 'b') && is_breaker(own, FakeTokenizer::kFirstPiece + 1));
  EXPECT_FALSE(is_breaker(own, ':'));
}

}  // namespace
}  // namespace quire
