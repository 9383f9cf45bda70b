#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

TEST(SchedulerAllocationsTest, StepsOfFixedMembershipAllocateNothing) {
  for (const bool caching : {false, true}) {
    SchedulerHarness h({.num_blocks = 2000, .block_size = 8, .prefix_caching = caching, .max_model_len = 512});
    SamplingParams params;
    params.max_tokens = 400;
    params.ignore_eos = true;
    params.logprobs = 0;
    params.n = 3;
    for (int32_t i = 0; i < 8; ++i) h.Add({1, 2, 3, i}, params);
    const auto step = [&h] {
      h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
      ASSERT_EQ(h.plan.samples.size(), 24u);
      h.runner.Run(h.plan, &h.result);
      h.scheduler.Commit(h.plan, h.result, h.now, &h.outputs);
      h.outputs.sequences.clear();
      h.outputs.logprobs.clear();
    };
    h.Step();  // prompts, then forks
    for (int i = 0; i < 5; ++i) step();
    const int64_t before = testing::ThreadAllocations();
    EXPECT_GT(before, 0);
    for (int i = 0; i < 200; ++i) step();
    EXPECT_EQ(testing::ThreadAllocations() - before, 0);
    EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
  }
}

}  // namespace
}  // namespace quire
