// The whole engine on the emulated device: batches, prefix hits, copies on write, preemption and swaps, with ids that
// do not depend on any of them.

#include "scheduler/engine.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/integration/row_independence.h"
#include "tests/simt/engine_case.h"

namespace quire::testing {
namespace {

// Several sequences a prompt, so that blocks are shared and copied before one writes.
std::vector<WorkloadRequest> Workload() {
  return MakeWorkload({.num_requests = 7,
                       .vocab_size = 320,
                       .min_prompt = 3,
                       .max_prompt = 50,
                       .min_output = 3,
                       .max_output = 9,
                       .max_n = 3,
                       .seed = 5});
}

WorkloadResult RunWith(const EngineOptions& options, bool one_at_a_time) {
  auto engine = CreateEngine(options);
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? RunWorkload(**engine, Workload(), one_at_a_time) : WorkloadResult{};
}

TEST_F(SimtEngineTest, DeterministicIdsDoNotDependOnBatchCacheOrPreemption) {
  options_.scheduler.enable_prefix_caching = false;
  const WorkloadResult alone = RunWith(options_, /*one_at_a_time=*/true);
  ASSERT_EQ(alone.ids.size(), Workload().size());

  options_.block_size = 32;
  options_.scheduler.max_num_batched_tokens = 24;
  options_.scheduler.enable_prefix_caching = true;
  const WorkloadResult cached = RunWith(options_, /*one_at_a_time=*/true);
  ExpectSameIds(alone, cached, "block size 32, 24 tokens a step, cached");
  EXPECT_EQ(cached.cached_tokens, ExpectedCachedTokens(Workload(), cached, options_.block_size));

  options_.block_size = 16;
  options_.scheduler.max_num_batched_tokens = 128;
  options_.num_kv_blocks = 12;
  options_.host_kv_bytes = int64_t{1} << 20;
  options_.scheduler.preemption = PreemptionMode::kSwap;
  const WorkloadResult swapped = RunWith(options_, /*one_at_a_time=*/false);
  ExpectSameIds(alone, swapped, "all at once, small pool, swap");
  EXPECT_GT(swapped.stats.swaps, 0);
  EXPECT_GT(swapped.stats.host_bytes_in, 0);

  options_.scheduler.preemption = PreemptionMode::kRecompute;
  options_.host_kv_bytes = 0;
  const WorkloadResult recomputed = RunWith(options_, /*one_at_a_time=*/false);
  ExpectSameIds(alone, recomputed, "all at once, small pool, recompute");
  EXPECT_GT(recomputed.stats.preemptions, 0);
}

// Whatever a block is made of, int8's scales too, is shared, copied and swapped. The integrity mode reads along.
TEST_F(SimtEngineTest, CachesOfEveryTypeAreSharedCopiedAndSwapped) {
  const EngineOptions options = options_;
  for (const DType dtype : {DType::kBf16, DType::kFp8E4m3, DType::kI8}) {
    SCOPED_TRACE(Name(dtype));
    options_ = options;
    options_.kv_dtype = dtype;
    options_.scheduler.enable_prefix_caching = false;
    const WorkloadResult alone = RunWith(options_, /*one_at_a_time=*/true);
    ASSERT_EQ(alone.ids.size(), Workload().size());

    options_.kv_integrity = true;
    options_.scheduler.enable_prefix_caching = true;
    options_.num_kv_blocks = 12;
    options_.host_kv_bytes = int64_t{1} << 20;
    options_.scheduler.preemption = PreemptionMode::kSwap;
    const WorkloadResult swapped = RunWith(options_, /*one_at_a_time=*/false);
    ExpectSameIds(alone, swapped, "all at once, small pool, swap");
    EXPECT_GT(swapped.stats.swaps, 0);
  }
}

TEST_F(SimtEngineTest, SaysWhatIsMissing) {
  options_.device_index = 1000;
  const absl::Status no_device = CreateEngine(options_).status();
  EXPECT_EQ(no_device.code(), absl::StatusCode::kUnavailable) << no_device;

  options_.device_index = 0;
  options_.block_size = 8;
  const absl::Status block_size = CreateEngine(options_).status();
  EXPECT_EQ(block_size.code(), absl::StatusCode::kFailedPrecondition) << block_size;

  options_.block_size = 16;
  options_.kv_dtype = DType::kF32;
  EXPECT_EQ(CreateEngine(options_).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace quire::testing
