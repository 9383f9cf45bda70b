// Public fault reports about pools that are too small (shared/fault-cases.md), through the whole engine, named by
// their ids.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sampling_rules.h"
#include "kernels/factory.h"
#include "model/sim_runner.h"
#include "model/transformer_runner.h"
#include "scheduler/engine_with_runner.h"
#include "tests/integration/row_independence.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

// Both tell output from prompt: the penalty counts what was given, and half of the vocabulary would end a sequence, so
// without min_tokens none comes to 40 tokens.
TEST(OverloadFaultTest, B055_PreemptedRequestsGiveTheIdsPenaltiesAndMinTokensOfSoloRuns) {
  const auto path = RefPath("tiny/llama_gqa");
  if (!path) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
  constexpr int32_t kMinTokens = 40;
  const ModelConfig config = *LoadModelConfig(*path);
  auto workload = MakeWorkload(
      {.num_requests = 8, .vocab_size = config.vocab_size, .min_prompt = 20, .max_prompt = 60, .max_n = 1});
  const auto rules = std::make_shared<SamplingRules>();
  rules->frequency_penalty = 1;
  for (WorkloadRequest& request : workload) {
    request.params.temperature = 0;
    request.params.rules = rules;
    request.params.needs_output = true;
    request.params.min_tokens = kMinTokens;
    request.params.max_tokens = 64;
    for (int32_t id = 0; id < config.vocab_size; id += 2) request.params.stop_token_ids.push_back(id);
  }
  const auto run = [&](int32_t num_blocks, bool one_at_a_time) {
    TransformerRunnerOptions runner;
    runner.model_path = *path;
    runner.backend = *CreateBackend({.kind = DeviceKind::kCpu, .num_threads = 1});
    runner.block_size = 16;
    runner.num_kv_blocks = 1 + num_blocks;
    EngineOptions options;
    options.max_model_len = 160;
    auto engine = CreateEngineWithRunner(options, config, *CreateTransformerRunner(std::move(runner)));
    EXPECT_TRUE(engine.ok()) << engine.status();
    return RunWorkload(**engine, workload, one_at_a_time);
  };
  const WorkloadResult solo = run(1000, true), crowded = run(20, false);
  ExpectSameIds(solo, crowded, "a pool of 20 blocks");
  rules->frequency_penalty = 0;
  EXPECT_NE(run(1000, true).ids, solo.ids) << "the penalty counts";
  EXPECT_GT(crowded.stats.preemptions, 0);
  for (const auto& ids : crowded.ids) {
    ASSERT_GT(ids[0].size(), static_cast<size_t>(kMinTokens));
  }
}

// Requests without an output limit that together exceed the pool many times over, in waves. The engine says nothing
// about it, and answers afterwards.
TEST(OverloadFaultTest, B056_AnOverloadedTinyPoolLogsNothingAndTheEngineAnswersAfterwards) {
  constexpr int32_t kVocabSize = 1000, kWaves = 4, kRequests = 60, kMaxModelLen = 96;
  ModelConfig config;
  config.vocab_size = kVocabSize;
  config.max_position_embeddings = 256;
  EngineOptions options;
  options.max_model_len = kMaxModelLen;
  auto engine = CreateEngineWithRunner(
      options, config, *CreateSimRunner({.config = config, .num_kv_blocks = 1 + 12, .block_size = 8, .time_scale = 0}));
  ASSERT_TRUE(engine.ok()) << engine.status();
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  OutputCollector collector(**engine, 1);
  (*engine)->Start();
  uint64_t handle = 0;
  const auto submit = [&](std::vector<int32_t> prompt, int32_t max_tokens) {
    SamplingParams params;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    EngineRequest request =
        MakeEngineRequest(std::move(prompt), params, (*engine)->info().block_size, (*engine)->info().key_context);
    request.handle = ++handle;
    EXPECT_EQ((*engine)->Submit(std::move(request)), absl::OkStatus());
  };
  for (int32_t wave = 0; wave < kWaves; ++wave) {
    for (int32_t i = 0; i < kRequests; ++i) {
      submit(std::vector<int32_t>(10 + i % 30, wave * kRequests + i), /*max_tokens=*/1 << 20);
    }
    (*engine)->WaitIdle(absl::InfiniteFuture());
  }
  const EngineStats stats = (*engine)->GetStats();
  submit({1, 2, 3}, 5);
  const OutputCollector::Request answer = collector.Await(handle);
  (*engine)->Stop();
  collector.Join();
  const std::string log = ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout();
  EXPECT_LT(log.size(), 4096u) << log.substr(0, 1000);
  EXPECT_EQ(stats.requests_finished, kWaves * kRequests);
  EXPECT_GT(stats.preemptions, kWaves * kRequests / 4);
  EXPECT_EQ(stats.kv_blocks_active, 0);
  for (const auto& [number, request] : collector.requests()) {
    if (number == handle) continue;
    const size_t prompt_len = 10 + (number - 1) % kRequests % 30;
    EXPECT_EQ(request.sequences.at(0).tokens.size(), kMaxModelLen - prompt_len);
  }
  EXPECT_EQ(answer.sequences.at(0).tokens.size(), 5u);
}

}  // namespace
}  // namespace quire::testing
