// Speculation with real arithmetic: drafts, whatever becomes of them, change no token, no log-probability and no end.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/request.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

struct Variant {
  const char* name;
  int32_t max_drafts = 0;
  int32_t block_size = 16;
  int32_t pool_tokens = 16000;
  int32_t max_tokens_per_step = 256;
  bool caching = true;
  int32_t max_seqs = 64;
};

class SpeculationTinyTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    model_ = *model;
  }

  std::unique_ptr<Engine> Make(const Variant& variant) const {
    EngineOptions options;
    options.model_path = model_;
    options.device = GetParam();
    options.num_threads = 1;
    options.max_model_len = 256;
    options.block_size = variant.block_size;
    options.num_kv_blocks = variant.pool_tokens / variant.block_size;
    options.scheduler.enable_prefix_caching = variant.caching;
    options.scheduler.max_num_batched_tokens = variant.max_tokens_per_step;
    options.scheduler.max_num_seqs = variant.max_seqs;
    if (variant.max_drafts > 0) {
      options.scheduler.speculation = SpeculationMode::kNgram;
      options.scheduler.max_drafts = variant.max_drafts;
    }
    return *CreateEngine(options);
  }

  std::string model_;
};

std::vector<int32_t> Prompt(int32_t n, int32_t period, int32_t seed) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; ++i) ids[i] = 32 + ((i % period) * (i % period) * 7 + i % period * 31 + seed * 13) % 90;
  return ids;
}

// Of every kind that concerns rows: greedy and seeded, filters, penalties, what looks back, n, log-probabilities, ends.
SamplingParams Params(int32_t i) {
  SamplingParams params;
  params.n = 1 + i % 3 / 2;
  params.temperature = i % 2 == 0 ? 0 : 0.7f;
  if (i % 4 == 3) params.top_k = 3;
  if (i % 5 == 3) params.top_p = 0.5f;
  params.seed = 1000 + i;
  params.max_tokens = 40 + i % 7 * 9;
  if (i % 3 != 1) params.logprobs = i % 3;
  if (i % 6 == 5) params.prompt_logprobs = 0;
  if (i % 8 == 6) params.min_tokens = 30;
  params.ignore_eos = i % 4 == 1;
  if (i % 9 == 4) params.repetition_detection = {.max_pattern_size = 4, .min_pattern_size = 1, .min_count = 8};
  if (i % 11 == 5) params.processed_logprobs = true;
  SamplingRules rules;
  if (i % 7 == 2) rules.repetition_penalty = 1.05f;
  if (i % 7 == 3) rules.frequency_penalty = 0.02f;
  if (i % 13 == 7) rules.dry_multiplier = 0.1f;
  if (i % 13 == 9) rules.no_repeat_ngram_size = 12;
  if (i % 17 == 11) rules.mirostat_tau = 2;
  if (i % 17 == 12) rules.logit_bias = {{.token_id = 40, .bias = 4}};
  params.needs_output = rules.sees_tokens() || rules.keeps_state();
  params.rules = std::make_shared<SamplingRules>(rules);
  return params;
}

struct Answers {
  std::vector<OutputCollector::Request> requests;
  EngineStats stats;
};

constexpr int32_t kNumRequests = 34;

Answers RunAll(Engine& engine) {
  OutputCollector collector(engine, 1);
  for (int32_t i = 0; i < kNumRequests; ++i) {
    EngineRequest request = MakeEngineRequest(Prompt(20 + i * 3, i % 4 == 0 ? 1000 : 3 + i % 9, i % 5), Params(i),
                                              engine.info().block_size, engine.info().key_context);
    request.handle = 1 + i;
    EXPECT_EQ(engine.Submit(std::move(request)), absl::OkStatus());
  }
  engine.Start();
  Answers answers;
  for (int32_t i = 0; i < kNumRequests; ++i) answers.requests.push_back(collector.Await(1 + i));
  EXPECT_TRUE(engine.WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(engine.CheckInvariants(), absl::OkStatus());
  answers.stats = engine.GetStats();
  EXPECT_EQ(answers.stats.kv_blocks_active, 0);
  engine.Stop();
  collector.Join();
  return answers;
}

void ExpectSame(const Answers& expected, const Answers& actual) {
  for (int32_t i = 0; i < kNumRequests; ++i) {
    SCOPED_TRACE(::testing::Message() << "request " << i);
    const OutputCollector::Request &want = expected.requests[i], &got = actual.requests[i];
    EXPECT_EQ(want.scores, got.scores);
    ASSERT_EQ(want.sequences.size(), got.sequences.size());
    for (const auto& [index, sequence] : want.sequences) {
      const OutputCollector::Sequence& other = got.sequences.at(index);
      EXPECT_EQ(sequence.tokens, other.tokens);
      EXPECT_EQ(sequence.logprobs, other.logprobs);
      EXPECT_EQ(sequence.last.finish_reason, other.last.finish_reason);
      EXPECT_EQ(sequence.last.stop_token_id, other.last.stop_token_id);
    }
  }
}

TEST_P(SpeculationTinyTest, DraftsChangeNothingButTheNumberOfSteps) {
  const auto without = Make({.name = "without"});
  const Answers expected = RunAll(*without);
  EXPECT_EQ(expected.stats.drafted_tokens, 0);
  const Variant variants[] = {
      {.name = "one draft", .max_drafts = 1},
      {.name = "drafts", .max_drafts = 8},
      {.name = "one by one", .max_drafts = 8, .caching = false, .max_seqs = 1},
      {.name = "blocks of one token", .max_drafts = 8, .block_size = 1},
      {.name = "blocks of 32, preempted", .max_drafts = 8, .block_size = 32, .pool_tokens = 1024},
      {.name = "in chunks", .max_drafts = 5, .max_tokens_per_step = 24},
      {.name = "preempted", .max_drafts = 8, .pool_tokens = 800},
      {.name = "preempted, without a cache", .max_drafts = 8, .pool_tokens = 800, .caching = false},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const auto engine = Make(variant);
    const Answers answers = RunAll(*engine);
    ExpectSame(expected, answers);
    EXPECT_GT(answers.stats.accepted_tokens, 5) << "though rows cost much where the model is so small";
    EXPECT_GT(answers.stats.drafted_tokens, answers.stats.accepted_tokens) << "some are refused, too";
    EXPECT_EQ(answers.stats.generation_tokens, expected.stats.generation_tokens);
    if (variant.pool_tokens < 16000) {
      EXPECT_GT(answers.stats.preemptions, 0);
    }
    int64_t drafted = 0, accepted = 0;
    for (const OutputCollector::Request& request : answers.requests) {
      drafted += request.last.drafted_tokens;
      accepted += request.last.accepted_tokens;
    }
    EXPECT_EQ(drafted, answers.stats.drafted_tokens);
    EXPECT_EQ(accepted, answers.stats.accepted_tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SpeculationTinyTest, ::testing::Values(DeviceKind::kReference, DeviceKind::kCpu),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace quire::testing
