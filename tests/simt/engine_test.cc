// The whole engine on the emulated device: batches, prefix hits, copies on write, preemption and swaps, with ids that
// do not depend on any of them.

#include "scheduler/engine.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "scheduler/request.h"
#include "tests/integration/row_independence.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/simt/runtime_emulator.h"
#include "tests/simt/simt_test.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

class SimtEngineTest : public simt::SimtTest {
 protected:
  void SetUp() override {
    SimtTest::SetUp();
    const auto model = RefPath("tiny/llama_gqa");
    if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
    options_.model_path = *model;
    options_.device = DeviceKind::kCuda;
    options_.num_threads = 1;
    options_.max_model_len = 96;
    options_.block_size = 16;
    options_.num_kv_blocks = 64;
    options_.host_kv_bytes = 0;
    options_.deterministic = true;
    options_.scheduler.max_num_batched_tokens = 128;
  }

  // Several sequences a prompt, so that blocks are shared and copied before one writes.
  static std::vector<WorkloadRequest> Workload() {
    return MakeWorkload({.num_requests = 7,
                         .vocab_size = 320,
                         .min_prompt = 3,
                         .max_prompt = 50,
                         .min_output = 3,
                         .max_output = 9,
                         .max_n = 3,
                         .seed = 5});
  }

  static WorkloadResult RunWith(const EngineOptions& options, bool one_at_a_time) {
    auto engine = CreateEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return engine.ok() ? RunWorkload(**engine, Workload(), one_at_a_time) : WorkloadResult{};
  }

  EngineOptions options_;
};

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

TEST_F(SimtEngineTest, SaysWhatIsMissing) {
  options_.device_index = 1;
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

TEST_F(SimtEngineTest, OutOfDeviceMemoryNamesTheBytes) {
  simt::EmulatedDevice& device = simt::emulated_device();
  const int64_t limit = device.limit_bytes;
  EXPECT_EQ(device.used_bytes, 0);  // engines give back all they took
  device.limit_bytes = 200'000;     // the weights do not fit
  options_.num_kv_blocks = 16;
  options_.max_model_len = 0;
  const absl::Status status = CreateEngine(options_).status();
  device.limit_bytes = limit;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("bytes of device memory are needed"), std::string::npos) << status;
  EXPECT_EQ(device.used_bytes, 0);
}

TEST_F(SimtEngineTest, AFailedDeviceFailsEveryStreamAndIsReportedOnce) {
  int reports = 0;
  options_.on_device_failure = [&reports](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    ++reports;
  };
  auto engine = CreateEngine(options_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  simt::emulated_device().fails = true;
  OutputCollector collector(**engine, 1);
  for (uint64_t handle = 1; handle <= 2; ++handle) {
    EngineRequest request =
        MakeEngineRequest({1, 2, 3}, SamplingParams(), options_.block_size, (*engine)->info().key_context);
    request.handle = handle;
    ASSERT_TRUE((*engine)->Submit(std::move(request)).ok());
    if (handle == 1) (*engine)->Start();
    EXPECT_EQ(collector.Await(handle).last.finish_reason, FinishReason::kError);
  }
  (*engine)->Stop();
  collector.Join();
  EXPECT_EQ(reports, 1);
  simt::emulated_device().fails = false;
}

}  // namespace
}  // namespace quire::testing
