// The engine thread allocates nothing in steady state.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory.h"
#include "model/transformer_runner.h"
#include "scheduler/engine_with_runner.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/late_runner.h"
#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using testing::HookedRunner;
using testing::LateRunner;
using testing::OutputCollector;
using testing::RunnerHooks;

constexpr int kSequences = 8;
constexpr int kSteps = 200;

EngineRequest Request(uint64_t handle, int32_t block_size, bool repeats) {
  SamplingParams params;
  params.temperature = repeats ? 0 : 0.8f;
  params.top_p = 0.95f;
  params.top_k = 50;
  params.min_p = 0.01f;
  params.seed = handle;
  params.logprobs = 5;
  params.ignore_eos = true;
  params.max_tokens = 300;
  std::vector<int32_t> prompt;
  for (uint64_t i = 0; i < 20 + handle; ++i) prompt.push_back(static_cast<int32_t>(4 + (i * handle) % 300));
  EngineRequest request = MakeEngineRequest(std::move(prompt), params, block_size, KeyContext());
  request.handle = handle;
  return request;
}

// Runs 8 sampled requests with log-probabilities on `runner`, twice, and returns the allocations of the engine thread
// over 200 decode steps of the second round. The first one warms up what grows with the length of the context. With
// drafts: greedy requests, fewer steps.
int64_t AllocationsInSteadyState(std::unique_ptr<ModelRunner> runner, const ModelConfig& config, bool late = false,
                                 int32_t max_drafts = 0) {
  const int num_steps = max_drafts > 0 ? 20 : kSteps;
  std::atomic<bool> warm = false, submitted = false;
  int64_t first = 0, before = 0, allocations = -1;
  RunnerHooks hooks;
  hooks.before_step = [&](int64_t step, const ForwardBatch& batch) {
    while (warm && !submitted) std::this_thread::yield();
    // All 8 decode from here on.
    if (warm && first == 0 && batch.context_lens.size() == kSequences &&
        batch.token_ids.size() == batch.samples.size()) {
      first = step + num_steps / 5;
    }
    if (first != 0 && step == first) before = testing::ThreadAllocations();
    if (first != 0 && step == first + num_steps) allocations = testing::ThreadAllocations() - before;
    return absl::OkStatus();
  };
  const int32_t block_size = runner->block_size();
  runner = std::make_unique<HookedRunner>(std::move(runner), hooks);
  if (late) runner = std::make_unique<LateRunner>(std::move(runner));
  EngineOptions options;
  if (max_drafts > 0) {
    options.scheduler.speculation = SpeculationMode::kNgram;
    options.scheduler.max_drafts = max_drafts;
  }
  auto engine = CreateEngineWithRunner(std::move(options), config, std::move(runner));
  EXPECT_TRUE(engine.ok()) << engine.status();
  OutputCollector collector(**engine, 1);
  (*engine)->Start();
  for (uint64_t handle = 1; handle <= 2 * kSequences; ++handle) {
    if (handle == kSequences + 1) {
      EXPECT_TRUE((*engine)->WaitIdle(absl::InfiniteFuture()));
      warm = true;
    }
    EXPECT_TRUE((*engine)->Submit(Request(handle, block_size, max_drafts > 0)).ok());
  }
  submitted = true;
  EXPECT_TRUE((*engine)->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ((*engine)->GetStats().drafted_tokens > 20, max_drafts > 0);
  (*engine)->Stop();
  collector.Join();
  for (const auto& [handle, request] : collector.requests()) EXPECT_EQ(request.sequences.at(0).tokens.size(), 300u);
  return allocations;
}

TEST(EngineAllocationTest, SteadyDecodingAllocatesNothing) {
  SimRunnerOptions options;
  options.config.vocab_size = 320;
  options.config.max_position_embeddings = 512;
  options.num_kv_blocks = 500;
  options.block_size = 16;
  options.time_scale = 0;
  for (const bool late : {false, true}) {
    auto runner = CreateSimRunner(options);
    ASSERT_TRUE(runner.ok());
    EXPECT_EQ(AllocationsInSteadyState(*std::move(runner), options.config, late), 0);
  }
}

class EngineAllocationModelTest : public ::testing::TestWithParam<DeviceKind> {};

// The whole way: scheduler, model, sampling, outputs.
TEST_P(EngineAllocationModelTest, SteadyDecodingAllocatesNothing) {
  const auto model = testing::RefPath("tiny/llama_gqa");
  if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
  const auto config = LoadModelConfig(*model);
  ASSERT_TRUE(config.ok()) << config.status();
  for (const int32_t max_drafts : {0, 4}) {
    SCOPED_TRACE(max_drafts);
    auto backend = CreateBackend({.kind = GetParam(), .num_threads = 2});
    ASSERT_TRUE(backend.ok()) << backend.status();
    TransformerRunnerOptions options;
    options.model_path = *model;
    options.backend = *std::move(backend);
    options.block_size = 16;
    options.num_kv_blocks = 500;
    auto runner = CreateTransformerRunner(std::move(options));
    ASSERT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ(AllocationsInSteadyState(*std::move(runner), *config, /*late=*/false, max_drafts), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineAllocationModelTest,
                         ::testing::Values(DeviceKind::kReference, DeviceKind::kCpu),
                         [](const auto& test) { return std::string(Name(test.param)); });

TEST(EngineAllocationTest, TheCounterCounts) {
  const int64_t before = testing::ThreadAllocations();
  std::vector<int>* volatile data = new std::vector<int>(100);  // volatile: the compiler may not drop the pair
  delete data;
  EXPECT_EQ(testing::ThreadAllocations() - before, 2);
}

}  // namespace
}  // namespace quire
