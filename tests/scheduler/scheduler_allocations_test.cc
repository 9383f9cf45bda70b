#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/scheduler_harness.h"
#include "tests/testing/sim_loop.h"

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

TEST(SchedulerAllocationsTest, StepsWithDraftsAllocateNothing) {
  SchedulerHarness h({.num_blocks = 8000, .block_size = 8, .max_model_len = 4096, .max_drafts = 8});
  SamplingParams params = Tokens(4000);
  SamplingRules rules;
  rules.repetition_penalty = 1.5f;  // rows see all tokens, drafts included
  params.rules = std::make_shared<SamplingRules>(rules);
  params.needs_output = true;
  for (int32_t i = 0; i < 8; ++i) {
    params.top_k = 1 + i % 2;  // few ids, so that texts repeat themselves
    h.Add({1, 2, 3, i}, params);
  }
  const auto step = [&h] {
    h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
    h.runner.Run(h.plan, &h.result);
    h.scheduler.Commit(h.plan, h.result, h.now, &h.outputs);
    h.outputs.sequences.clear();
    h.outputs.logprobs.clear();
  };
  h.Step();
  for (int i = 0; i < 100; ++i) step();
  const int64_t drafted = h.scheduler.stats().drafted_tokens, before = testing::ThreadAllocations();
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(testing::ThreadAllocations() - before, 0);
  EXPECT_GT(h.scheduler.stats().drafted_tokens, drafted + 100);
  EXPECT_GT(h.scheduler.stats().accepted_tokens, 1000);
  EXPECT_EQ(h.scheduler.stats().requests_running, 8);
  EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
}

TEST(SchedulerAllocationsTest, OverlappedStepsAllocateNothing) {
  SchedulerHarness h({.num_blocks = 2000, .block_size = 8, .max_model_len = 512, .max_plans_in_flight = 2});
  for (int32_t i = 0; i < 24; ++i) h.Add({1, 2, 3, i}, Tokens(400));
  ASSERT_TRUE(h.Schedule());
  const auto step = [&h] {
    std::swap(h.plan, h.plan_before);
    h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
    ASSERT_EQ(h.plan.samples.size(), 24u);
    ASSERT_GE(h.plan.sequences[0].token_from_sample, 0);
    h.runner.Submit(h.plan);
    h.runner.Wait(&h.result);
    h.scheduler.Commit(h.plan_before, h.result, h.now, &h.outputs);
    h.outputs.sequences.clear();
    h.outputs.logprobs.clear();
  };
  for (int i = 0; i < 5; ++i) step();
  const int64_t before = testing::ThreadAllocations();
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(testing::ThreadAllocations() - before, 0);
  EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
}

TEST(SchedulerAllocationsTest, StepsInWhichManyFollowOneAllocateNothing) {
  SchedulerHarness h({.num_blocks = 2000, .block_size = 8, .max_num_batched_tokens = 32, .max_model_len = 1024});
  SamplingParams params;
  params.max_tokens = 2;
  params.logprobs = 0;
  std::vector<int32_t> prompt(700);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * i % 47);
  for (int32_t i = 0; i < 50; ++i) h.Add(prompt, params);
  for (int i = 0; i < 5; ++i) h.Step();
  const int64_t before = testing::ThreadAllocations();
  for (int i = 0; i < 12; ++i) {
    h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
    ASSERT_EQ(h.plan.sequences.size(), 1u);
    h.runner.Run(h.plan, &h.result);
    h.scheduler.Commit(h.plan, h.result, h.now, &h.outputs);
  }
  EXPECT_EQ(testing::ThreadAllocations() - before, 0);
  h.RunAll(100);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

// Every policy, without and with a bound on the step's time, with decodes, a prefill in chunks and requests that wait.
TEST(SchedulerAllocationsTest, StepsOfEveryPolicyAllocateNothing) {
  for (const PolicyKind policy : {PolicyKind::kFcfs, PolicyKind::kPriority, PolicyKind::kDeadline, PolicyKind::kFair}) {
    for (const absl::Duration itl_target : {absl::InfiniteDuration(), absl::Milliseconds(12)}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(policy) << " " << itl_target);
      SimLoopOptions options;
      options.record = true;  // which allocates nothing either
      options.scheduler.policy = policy;
      options.scheduler.itl_target = itl_target;
      options.scheduler.max_num_seqs = 12;
      options.scheduler.max_num_batched_tokens = 64;
      SimLoop loop(options);
      const auto add = [&loop](int32_t i, int32_t prompt_len) {
        loop.Add({.prompt_len = prompt_len,
                  .max_tokens = 1000,
                  .tenant = i % 2 == 0 ? "a" : "b",
                  .deadline = absl::Seconds(1000 + i),
                  .tpot_target = absl::Milliseconds(50)});
      };
      for (int32_t i = 0; i < 11; ++i) add(i, 20);
      for (int i = 0; i < 30; ++i) loop.Step();
      add(12, 7000);  // more than 100 steps
      for (int32_t i = 13; i < 20; ++i) add(i, 30);
      for (int i = 0; i < 10; ++i) loop.Step();
      ASSERT_EQ(loop.parts().size(), 12u);
      const int64_t before = testing::ThreadAllocations();
      for (int i = 0; i < 90; ++i) loop.Step();
      EXPECT_EQ(testing::ThreadAllocations() - before, 0);
      EXPECT_EQ(loop.scheduler.stats().requests_waiting, 7);
    }
  }
}

}  // namespace
}  // namespace quire
