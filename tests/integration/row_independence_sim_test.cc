#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "model/sim_runner.h"
#include "scheduler/engine_with_runner.h"
#include "tests/integration/row_independence.h"

namespace quire::testing {
namespace {

// Set by the build: 10,000, and fewer for the sanitizers.
constexpr int32_t kNumRequests = QUIRE_NUM_REQUESTS;
constexpr int32_t kVocabSize = 32000;
constexpr int32_t kLargePool = 200000;  // tokens

struct Variant {
  int32_t block_size = 16;
  int32_t pool_tokens = kLargePool;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;
  bool caching = false;
  bool one_at_a_time = false;
};

std::vector<WorkloadRequest> Workload() {
  return MakeWorkload({.num_requests = kNumRequests, .vocab_size = kVocabSize});
}

WorkloadResult RunVariant(const std::vector<WorkloadRequest>& workload, const Variant& variant) {
  SimRunnerOptions sim;
  sim.config.vocab_size = kVocabSize;
  sim.config.max_position_embeddings = 1024;
  sim.block_size = variant.block_size;
  sim.num_kv_blocks = 1 + variant.pool_tokens / variant.block_size;
  sim.time_scale = 0;
  auto runner = CreateSimRunner(sim);
  EXPECT_TRUE(runner.ok()) << runner.status();
  EngineOptions options;
  options.max_model_len = 768;
  options.max_queued_requests = static_cast<int32_t>(workload.size());
  options.max_queued_tokens = int64_t{1} << 30;
  options.scheduler.max_num_seqs = variant.max_num_seqs;
  options.scheduler.max_num_batched_tokens = variant.max_num_batched_tokens;
  options.scheduler.enable_prefix_caching = variant.caching;
  auto engine = CreateEngineWithRunner(options, sim.config, *std::move(runner));
  EXPECT_TRUE(engine.ok()) << engine.status();
  return RunWorkload(**engine, workload, variant.one_at_a_time);
}

class RowIndependenceSimTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workload_ = new std::vector<WorkloadRequest>(Workload());
    alone_ = new WorkloadResult(RunVariant(*workload_, {.one_at_a_time = true}));
  }
  static void TearDownTestSuite() {
    delete workload_;
    delete alone_;
  }
  static const std::vector<WorkloadRequest>* workload_;
  static const WorkloadResult* alone_;
};
const std::vector<WorkloadRequest>* RowIndependenceSimTest::workload_ = nullptr;
const WorkloadResult* RowIndependenceSimTest::alone_ = nullptr;

TEST_F(RowIndependenceSimTest, SixtyFourAtOnce) { ExpectSameIds(*alone_, RunVariant(*workload_, {}), "64 at once"); }

TEST_F(RowIndependenceSimTest, SixtyFourTokensAStep) {
  ExpectSameIds(*alone_, RunVariant(*workload_, {.max_num_batched_tokens = 64}), "64 tokens a step");
}

TEST_F(RowIndependenceSimTest, BudgetBelowTheNumberOfSequences) {
  ExpectSameIds(*alone_, RunVariant(*workload_, {.max_num_batched_tokens = 24}), "24 tokens a step");
}

TEST_F(RowIndependenceSimTest, Preemption) {
  for (const bool caching : {false, true}) {
    const WorkloadResult result = RunVariant(*workload_, {.pool_tokens = 4096, .caching = caching});
    EXPECT_GE(result.stats.preemptions, 20);
    ExpectSameIds(*alone_, result, caching ? "small pool, cached" : "small pool");
  }
}

TEST_F(RowIndependenceSimTest, PrefixCacheOneAtATime) {
  // Nothing is evicted, so that what must be found is known.
  const Variant variant = {.pool_tokens = 10000000, .caching = true, .one_at_a_time = true};
  const WorkloadResult result = RunVariant(*workload_, variant);
  ASSERT_EQ(result.stats.evictions, 0);
  ExpectSameIds(*alone_, result, "cached, one at a time");
  EXPECT_EQ(result.cached_tokens, ExpectedCachedTokens(*workload_, result, variant.block_size));
  EXPECT_GT(result.stats.prefix_hit_tokens, 10 * kNumRequests);
}

TEST_F(RowIndependenceSimTest, PrefixCacheSixtyFourAtOnceWithEviction) {
  const WorkloadResult result = RunVariant(*workload_, {.pool_tokens = 40000, .caching = true});
  EXPECT_GT(result.stats.evictions, 0);
  EXPECT_GT(result.stats.prefix_hit_tokens, kNumRequests);
  ExpectSameIds(*alone_, result, "cached, 64 at once");
}

TEST_F(RowIndependenceSimTest, WithoutCachingNothingIsCached) {
  EXPECT_EQ(alone_->stats.kv_blocks_cached, 0);
  for (int32_t cached : alone_->cached_tokens) EXPECT_EQ(cached, 0);
}

TEST_F(RowIndependenceSimTest, BlockSizes) {
  for (const int32_t block_size : {1, 8, 32, 64}) {
    for (const int32_t pool_tokens : {kLargePool, 4096}) {
      const WorkloadResult result =
          RunVariant(*workload_, {.block_size = block_size, .pool_tokens = pool_tokens, .caching = true});
      ExpectSameIds(*alone_, result, "block size " + std::to_string(block_size));
    }
  }
}

}  // namespace
}  // namespace quire::testing
