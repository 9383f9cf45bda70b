#include "server/frontend/validator.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.served_model_names = {"m", "alias"};
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_text_bytes = 100;
  limits.max_logprobs = 20;
  return limits;
}

GenerateRequest Request() {
  GenerateRequest request;
  request.prompt = std::string("hello");
  return request;
}

struct BadCase {
  std::string field;
  std::string value_in_message, limit_in_message;
  std::function<void(GenerateRequest&)> spoil;
};

TEST(ValidatorTest, RefusesEveryFieldOutOfRangeNamingFieldValueAndLimit) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const std::vector<BadCase> cases = {
      {"request_id", "257", "256", [](auto& r) { r.request_id = std::string(257, 'x'); }},
      {"request_id", "", "control", [](auto& r) { r.request_id = "a\r\nX-Tenant: b"; }},
      {"request_id", "", "UTF-8", [](auto& r) { r.request_id = "\xFF"; }},
      {"cache.salt", "257", "256", [](auto& r) { r.cache.salt = std::string(257, 'x'); }},
      {"x-tenant", "257", "256", [](auto& r) { r.tenant = std::string(257, 'x'); }},
      {"cache.retention", "4", "3", [](auto& r) { r.cache.retention.resize(4); }},
      {"cache.retention[0].begin", "-1", "0",
       [](auto& r) { r.cache.retention = {{.begin = -1, .end = {}, .keep = {}}}; }},
      {"cache.retention[0].begin", "31", "30",
       [](auto& r) { r.cache.retention = {{.begin = 31, .end = {}, .keep = {}}}; }},
      {"cache.retention[0].end", "2", "3", [](auto& r) { r.cache.retention = {{.begin = 2, .end = 2, .keep = {}}}; }},
      {"cache.retention[0].keep.priority", "101", "100",
       [](auto& r) { r.cache.retention = {{.begin = 0, .end = {}, .keep = {.priority = 101, .ttl_seconds = {}}}}; }},
      {"cache.decode_retention.priority", "-1", "0",
       [](auto& r) { r.cache.decode_retention = {.priority = -1, .ttl_seconds = {}}; }},
      {"cache.decode_retention.ttl_seconds", "nan", "2592000",
       [=](auto& r) { r.cache.decode_retention = {.priority = {}, .ttl_seconds = nan}; }},
      {"cache.breakpoints", "5", "4", [](auto& r) { r.cache.breakpoints.resize(5); }},
      {"cache.breakpoints[0].position", "0", "1", [](auto& r) { r.cache.breakpoints.resize(1); }},
      {"cache.breakpoints[0].ttl_seconds", "0", "2592000",
       [](auto& r) { r.cache.breakpoints = {{.position = 1, .ttl_seconds = 0}}; }},
      {"priority", "1001", "1000", [](auto& r) { r.priority = 1001; }},
      {"num_speculative_tokens", "65", "64", [](auto& r) { r.num_speculative_tokens = 65; }},
      {"num_speculative_tokens", "-1", "0", [](auto& r) { r.num_speculative_tokens = -1; }},
      {"truncate_prompt_tokens", "0", "31", [](auto& r) { r.truncate_prompt_tokens = 0; }},
      {"truncate_prompt_tokens", "32", "31", [](auto& r) { r.truncate_prompt_tokens = 32; }},
      {"truncation_side", "3", "2", [](auto& r) { r.truncation_side = 3; }},
      {"output.logprobs_mode", "3", "2", [](auto& r) { r.logprobs_mode = 3; }},
      {"stopping.repetition_detection.max_pattern_size", "0", "1", [](auto& r) { r.repetition_detection.emplace(); }},
      {"stopping.repetition_detection.min_count", "1", "2",
       [](auto& r) { r.repetition_detection = {.max_pattern_size = 1, .min_pattern_size = {}, .min_count = 1}; }},
      {"stopping.repetition_detection.min_pattern_size", "3", "2",
       [](auto& r) { r.repetition_detection = {.max_pattern_size = 2, .min_pattern_size = 3, .min_count = 2}; }},
      {"priority", "-1001", "-1000", [](auto& r) { r.priority = -1001; }},
      {"sampling.temperature", "-0.5", "0", [](auto& r) { r.temperature = -0.5f; }},
      {"sampling.temperature", "nan", "0", [=](auto& r) { r.temperature = nan; }},
      {"sampling.temperature", "inf", "finite", [=](auto& r) { r.temperature = inf; }},
      {"sampling.min_p", "1.5", "[0, 1]", [](auto& r) { r.min_p = 1.5f; }},
      {"sampling.min_p", "nan", "[0, 1]", [=](auto& r) { r.min_p = nan; }},
      {"sampling.min_p", "-1", "[0, 1]", [](auto& r) { r.min_p = -1.0f; }},
      {"sampling.top_p", "0", "(0, 1]", [](auto& r) { r.top_p = 0.0f; }},
      {"sampling.top_p", "1.25", "(0, 1]", [](auto& r) { r.top_p = 1.25f; }},
      {"sampling.top_p", "nan", "(0, 1]", [=](auto& r) { r.top_p = nan; }},
      {"sampling.top_k", "-1", "0", [](auto& r) { r.top_k = -1; }},
      {"sampling.n", "0", "[1, 64]", [](auto& r) { r.n = 0; }},
      {"sampling.n", "5000000", "[1, 64]", [](auto& r) { r.n = 5000000; }},
      {"sampling.best_of", "2", "[3, 64]", [](auto& r) { r.n = 3, r.best_of = 2; }},
      {"sampling.best_of", "65", "[1, 64]", [](auto& r) { r.best_of = 65; }},
      {"sampling.best_of", "4", "use Generate", [](auto& r) { r.best_of = 4, r.streamed = true; }},
      {"sampling.best_of", "", "beam search", [](auto& r) { r.best_of = 4, r.beam_width = 4; }},
      {"sampling.beam_search.width", "1", "[2, 64]", [](auto& r) { r.beam_width = 1; }},
      {"sampling.beam_search.width", "0", "[2, 64]", [](auto& r) { r.beam_width = 0; }},
      {"sampling.beam_search.width", "65", "[2, 64]", [](auto& r) { r.beam_width = 65; }},
      {"sampling.beam_search.width", "3", "[4, 64]", [](auto& r) { r.beam_width = 3, r.n = 4; }},
      {"sampling.beam_search.width", "missing", "length_penalty", [](auto& r) { r.length_penalty = 1.0f; }},
      {"sampling.beam_search.width", "missing", "early_stopping", [](auto& r) { r.early_stopping = 2; }},
      {"sampling.beam_search.length_penalty", "nan", "finite",
       [=](auto& r) { r.beam_width = 2, r.length_penalty = nan; }},
      {"sampling.beam_search.early_stopping", "4", "[0, 3]", [](auto& r) { r.beam_width = 2, r.early_stopping = 4; }},
      {"sampling.temperature", "", "beam search", [](auto& r) { r.beam_width = 2, r.temperature = 0.5f; }},
      {"sampling.top_k", "", "beam search", [](auto& r) { r.beam_width = 2, r.top_k = 5; }},
      {"sampling.top_p", "", "beam search", [](auto& r) { r.beam_width = 2, r.top_p = 0.5f; }},
      {"sampling.min_p", "", "beam search", [](auto& r) { r.beam_width = 2, r.min_p = 0.5f; }},
      {"stopping.stop", "", "beam search", [](auto& r) { r.beam_width = 2, r.stop = {"x"}; }},
      {"stopping.max_tokens", "0", "31", [](auto& r) { r.max_tokens = 0; }},
      {"stopping.max_tokens", "2147483647", "31", [](auto& r) { r.max_tokens = 2147483647; }},
      {"stopping.min_tokens", "5", "4", [](auto& r) { r.max_tokens = 4, r.min_tokens = 5; }},
      {"stopping.min_tokens", "-1", "0", [](auto& r) { r.min_tokens = -1; }},
      {"stopping.min_tokens", "32", "31", [](auto& r) { r.min_tokens = 32; }},
      {"stopping.stop", "17", "16", [](auto& r) { r.stop.assign(17, "x"); }},
      {"stopping.stop[1]", "empty", "1024",
       [](auto& r) {
         r.stop = {"x", ""};
       }},
      {"stopping.stop[0]", "1025", "1024", [](auto& r) { r.stop = {std::string(1025, 'x')}; }},
      {"stopping.stop[0]", "", "UTF-8", [](auto& r) { r.stop = {"\xC3"}; }},
      {"stopping.stop_token_ids", "65", "64", [](auto& r) { r.stop_token_ids.assign(65, 1); }},
      {"stopping.stop_token_ids[1]", "100", "99",
       [](auto& r) {
         r.stop_token_ids = {1, 100};
       }},
      {"stopping.stop_token_ids[0]", "2147483647", "99", [](auto& r) { r.stop_token_ids = {2147483647}; }},
      {"output.logprobs", "21", "20", [](auto& r) { r.logprobs = 21; }},
      {"output.logprobs", "-1", "0", [](auto& r) { r.logprobs = -1; }},
      {"output.prompt_logprobs", "21", "20", [](auto& r) { r.prompt_logprobs = 21; }},
      {"output.prompt_logprobs", "-2", "0", [](auto& r) { r.prompt_logprobs = -2; }},
      {"prompt", "missing", "text", [](auto& r) { r.prompt = std::monostate(); }},
      {"prompt", "0", "1", [](auto& r) { r.prompt = std::vector<int64_t>(); }},
      {"prompt", "32", "32", [](auto& r) { r.prompt = std::vector<int64_t>(32, 1); }},
      {"token_ids.ids[2]", "100", "99",
       [](auto& r) {
         r.prompt = std::vector<int64_t>{1, 2, 100};
       }},
      {"token_ids.ids[0]", "-1", "0", [](auto& r) { r.prompt = std::vector<int64_t>{-1}; }},
      {"prompt", "33", "32", [](auto& r) { r.prompt = std::vector<int64_t>(33, 1000); }},
      {"text", "101", "100", [](auto& r) { r.prompt = std::string(101, 'x'); }},
      {"text", "", "UTF-8", [](auto& r) { r.prompt = std::string("\xED\xA0\x80"); }},
      {"stopping.max_tokens", "30", "leaves 29",
       [](auto& r) {
         r.prompt = std::vector<int64_t>{1, 2, 3};
         r.max_tokens = 30;
       }},
  };
  const Validator validator(Limits());
  for (const BadCase& c : cases) {
    GenerateRequest request = Request();
    c.spoil(request);
    const absl::Status status = validator.Validate(request).status();
    SCOPED_TRACE(c.field + ": " + std::string(status.message()));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(status), c.field);
    const std::string message(status.message());
    EXPECT_EQ(message.rfind(c.field + ":", 0), 0u);
    EXPECT_NE(message.find(c.value_in_message), std::string::npos);
    EXPECT_NE(message.find(c.limit_in_message), std::string::npos);
  }
}

TEST(ValidatorTest, AClientsTextInAMessageIsCutBetweenCharacters) {
  GenerateRequest request = Request();
  request.model = "x";
  for (int i = 0; i < 200; ++i) request.model += "\xc3\xa4";
  const absl::Status status = Validator(Limits()).Validate(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Quoted(request.model), "'" + request.model.substr(0, 255) + "'");
  EXPECT_NE(status.message().find(Quoted(request.model)), absl::string_view::npos);
  EXPECT_EQ(Quoted("\xc3"), "'?'");
  EXPECT_EQ(Quoted(""), "''");
}

TEST(ValidatorTest, TakesNeutralAndExtremeValues) {
  GenerateRequest request = Request();
  request.temperature = 0.0f;
  request.top_p = 1.0f;
  request.min_p = 0.0f;
  request.top_k = 9999999;
  request.n = 64;
  request.seed = std::numeric_limits<int64_t>::min();
  request.max_tokens = 31;
  request.min_tokens = 31;
  request.stop.assign(16, std::string(1024, 's'));
  request.stop_token_ids.assign(64, 99);
  request.logprobs = 20;
  request.prompt_logprobs = 0;
  request.priority = -1000;
  request.request_id = std::string(256, 'i');
  request.model = "alias";
  const auto validated = Validator(Limits()).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  EXPECT_EQ(validated->params.top_k, 100);  // the vocabulary
  EXPECT_EQ(validated->params.seed, uint64_t{1} << 63);
  EXPECT_EQ(validated->params.stop_token_ids.size(), 64u);
}

TEST(ValidatorTest, BestOfSequencesRunAndNAreReturned) {
  GenerateRequest request = Request();
  request.n = 2;
  request.best_of = 5;
  auto validated = Validator(Limits()).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  EXPECT_EQ(validated->params.n, 5);
  EXPECT_EQ(validated->num_returned, 2);
  request.best_of = 2;
  request.streamed = true;
  validated = Validator(Limits()).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  EXPECT_EQ(validated->params.n, 2);
}

TEST(ValidatorTest, BeamSearchIsGreedyWhateverTheModelsDefaults) {
  RequestLimits limits = Limits();
  limits.default_temperature = 0.7f;
  limits.default_top_k = 20;
  limits.default_top_p = 0.8f;
  limits.default_min_p = 0.1f;
  GenerateRequest request = Request();
  request.beam_width = 4;
  request.n = 4;
  request.early_stopping = 3;
  request.length_penalty = -2.0f;
  const auto validated = Validator(limits).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  const SamplingParams& params = validated->params;
  EXPECT_EQ(params.beam_width, 4);
  EXPECT_EQ(params.early_stopping, EarlyStopping::kNever);
  EXPECT_EQ(params.length_penalty, -2.0f);
  EXPECT_EQ(params.temperature, 0.0f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.min_p, 0.0f);
}

TEST(ValidatorTest, UnknownModelIsNotFound) {
  GenerateRequest request = Request();
  request.model = "other";
  const absl::Status status = Validator(Limits()).Validate(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("m, alias"), absl::string_view::npos);
}

TEST(ValidatorTest, RequestBeatsModelDefaultsBeatBuiltInOnes) {
  RequestLimits limits = Limits();
  EXPECT_EQ(Validator(limits).Validate(Request())->params.temperature, 1.0f);
  limits.default_temperature = 0.25f;
  limits.default_top_p = 0.5f;
  limits.default_top_k = 7;
  limits.default_min_p = 0.125f;
  const SamplingParams defaults = Validator(limits).Validate(Request())->params;
  EXPECT_EQ(defaults.temperature, 0.25f);
  EXPECT_EQ(defaults.top_p, 0.5f);
  EXPECT_EQ(defaults.top_k, 7);
  EXPECT_EQ(defaults.min_p, 0.125f);
  GenerateRequest request = Request();
  request.temperature = 1.5f;
  request.top_k = 0;
  const SamplingParams own = Validator(limits).Validate(request)->params;
  EXPECT_EQ(own.temperature, 1.5f);
  EXPECT_EQ(own.top_k, 0);
  EXPECT_EQ(own.top_p, 0.5f);
}

// B081: only what the request leaves out comes from the model.
TEST(ValidatorTest, B081TheModelsGreedyDefaultDoesNotBeatTheRequest) {
  RequestLimits limits = Limits();
  limits.default_temperature = 0.0f;
  limits.default_top_k = 1;
  limits.default_repetition_penalty = 1.5f;
  GenerateRequest request = Request();
  request.temperature = 1.5f;
  auto validated = Validator(limits).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  EXPECT_EQ(validated->params.temperature, 1.5f);
  EXPECT_EQ(validated->rules.rules.repetition_penalty, 1.5f);
  request.rules.repetition_penalty = 1.0f;
  EXPECT_FALSE(Validator(limits).Validate(request)->rules.any());
}

TEST(ValidatorTest, TemperaturesNearZero) {
  const auto temperature = [](float given) {
    GenerateRequest request = Request();
    request.temperature = given;
    return Validator(Limits()).Validate(request)->params.temperature;
  };
  EXPECT_EQ(temperature(0), 0.0f);
  EXPECT_LT(temperature(9e-6f), 1e-5f);  // greedy
  EXPECT_EQ(temperature(1e-5f), 0.01f);
  EXPECT_EQ(temperature(0.009f), 0.01f);
  EXPECT_EQ(temperature(0.011f), 0.011f);
  EXPECT_EQ(temperature(1e30f), 1e30f);
}

TEST(ValidatorTest, RepetitionDetectionAndItsDefaults) {
  GenerateRequest request = Request();
  request.repetition_detection = {.max_pattern_size = 4, .min_pattern_size = {}, .min_count = 3};
  const auto validated = Validator(Limits()).Validate(request);
  ASSERT_TRUE(validated.ok()) << validated.status();
  EXPECT_EQ(validated->params.repetition_detection.min_pattern_size, 1);
  EXPECT_EQ(validated->params.repetition_detection.min_count, 3);
}

TEST(ValidatorTest, TruncationKeepsTheLastOrTheFirstIds) {
  GenerateRequest request = Request();
  std::vector<int64_t> ids(40);
  for (int64_t i = 0; i < 40; ++i) ids[i] = i;
  request.prompt = ids;
  EXPECT_FALSE(Validator(Limits()).Validate(request).ok());
  request.truncate_prompt_tokens = 3;
  const auto prompt = [&request] {
    return std::get<std::vector<int32_t>>(Validator(Limits()).Validate(request)->prompt);
  };
  EXPECT_EQ(prompt(), (std::vector<int32_t>{37, 38, 39}));
  request.truncation_side = 2;
  EXPECT_EQ(prompt(), (std::vector<int32_t>{0, 1, 2}));
  request.truncate_prompt_tokens = -1;
  EXPECT_EQ(prompt().size(), 31u);
  request.max_tokens = 10;
  EXPECT_EQ(prompt().size(), 22u);
}

TEST(ValidatorTest, WholeVocabularyOnlyWhereAllowed) {
  RequestLimits limits = Limits();
  limits.max_logprobs = -1;
  GenerateRequest request = Request();
  request.logprobs = -1;
  request.prompt_logprobs = 100;
  EXPECT_TRUE(Validator(limits).Validate(request).ok());
  request.prompt_logprobs = 101;
  EXPECT_FALSE(Validator(limits).Validate(request).ok());
}

TEST(ValidatorTest, FitPromptSaysBothLengthsAndFillsMaxTokens) {
  const Validator validator(Limits());
  SamplingParams params;
  const std::vector<int32_t> ids(10, 1), too_many(40, 1), outside = {1, 100};
  ASSERT_TRUE(validator.FitPrompt(ids, /*has_max_tokens=*/false, &params).ok());
  EXPECT_EQ(params.max_tokens, 22);
  const std::string message(validator.FitPrompt(too_many, false, &params).message());
  EXPECT_NE(message.find("40"), std::string::npos);
  EXPECT_NE(message.find("32"), std::string::npos);
  EXPECT_FALSE(validator.FitPrompt(outside, false, &params).ok());
  params.min_tokens = 23;
  EXPECT_EQ(FieldOf(validator.FitPrompt(ids, false, &params)), "stopping.min_tokens");
}

TEST(ValidatorTest, RetentionFitsThePromptOrNamesTheFieldThatDoesNot) {
  CacheRequest cache;
  cache.retention = {{.begin = 2, .end = 4, .keep = {.priority = 90, .ttl_seconds = 60}}};
  cache.breakpoints = {{.position = 6, .ttl_seconds = {}}};
  cache.decode_retention = {.priority = 5, .ttl_seconds = {}};
  const auto retention = Validator::FitRetention(cache, 8);
  ASSERT_TRUE(retention.ok()) << retention.status();
  EXPECT_EQ(retention->For(0, 2).priority, Retention::kBreakpointPriority);
  EXPECT_EQ(retention->For(0, 2).ttl, absl::Minutes(5));
  EXPECT_EQ(retention->For(2, 4).priority, 90);
  EXPECT_EQ(retention->For(2, 4).ttl, absl::Minutes(1));
  EXPECT_EQ(retention->For(6, 8).priority, kDefaultRetention);
  EXPECT_EQ(retention->For(8, 12).priority, 5);
  EXPECT_EQ(FieldOf(Validator::FitRetention(cache, 5).status()), "cache.breakpoints[0].position");
  EXPECT_EQ(FieldOf(Validator::FitRetention(cache, 3).status()), "cache.retention[0].end");
  EXPECT_EQ(FieldOf(Validator::FitRetention(cache, 2).status()), "cache.retention[0].begin");
  cache.retention[0].end.reset();
  EXPECT_EQ(Validator::FitRetention(cache, 8)->For(7, 8).priority, 90) << "to the end of the prompt";
}

}  // namespace
}  // namespace quire
