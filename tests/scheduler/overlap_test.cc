// Plans that are made while the one before is in flight. That no token depends on it under random loads is shown by
// scheduler_property_test.cc; here is what happens when.

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

HarnessOptions Overlapped() { return {.max_plans_in_flight = 2}; }

// A request whose output ends with an eos as token `length`, made by taking as eos what it gives there.
struct EndingRequest {
  std::vector<int32_t> prompt;
  int32_t eos = 0;
};
EndingRequest EndingAt(int32_t length, const HarnessOptions& options) {
  for (int32_t seed = 1;; ++seed) {
    EndingRequest found{.prompt = Ids(10, seed)};
    SamplingParams params = Tokens(length);
    const EngineRequest request = MakeEngineRequest(found.prompt, params, options.block_size, KeyContext());
    const auto output = FakeRunner::ExpectedOutputs(request, options.max_model_len, {})[0];
    found.eos = output.back();
    if (std::count(output.begin(), output.end(), found.eos) == 1) return found;
  }
}

TEST(OverlapTest, TheNextRowTakesItsTokenFromThePlanBefore) {
  SchedulerHarness h(Overlapped());
  const uint64_t request = h.Add(Ids(10), Tokens(3));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.sequences[0].token_from_sample, -1);
  EXPECT_EQ(h.plan.sequences[0].sample, 0);
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.scheduler.num_in_flight(), 2);
  ASSERT_EQ(h.plan.sequences.size(), 1u);
  EXPECT_EQ(h.plan.sequences[0].start, 10);
  EXPECT_EQ(h.plan.sequences[0].num_tokens, 1);
  EXPECT_EQ(h.plan.sequences[0].token_from_sample, 0);
  EXPECT_EQ(h.plan.samples[0].output_position, 1u);
  h.Commit();
  EXPECT_EQ(h.seen(request).ids[0].size(), 1u);
  h.RunAll(10);
  h.ExpectCorrect(request);
  EXPECT_EQ(h.scheduler.stats().steps, 3);
  EXPECT_EQ(h.scheduler.stats().surplus_tokens, 0);
  h.ExpectIdle();
}

TEST(OverlapTest, SamplesAreFoundWhenThePlansHoldOthersToo) {
  SchedulerHarness h(Overlapped());
  h.Add(Ids(10, 1), Tokens(1));  // sample 0 of the first plan, and in no other
  const uint64_t second = h.Add(Ids(10, 2), Tokens(5));
  ASSERT_TRUE(h.Schedule());
  ASSERT_TRUE(h.Schedule());
  ASSERT_EQ(h.plan.sequences.size(), 1u);
  EXPECT_EQ(h.plan.sequences[0].token_from_sample, 1);
  h.RunAll(10);
  h.ExpectCorrect(second);
}

// max_tokens and max_model_len are known before: nothing is planned behind the last token.
TEST(OverlapTest, NothingIsPlannedBehindTheLastToken) {
  for (const int32_t max_tokens : {1, 2, 3, 7}) {
    SchedulerHarness h({.max_model_len = 20, .max_plans_in_flight = 2});
    const uint64_t by_request = h.Add(Ids(10, 1), Tokens(max_tokens));
    const uint64_t by_model = h.Add(Ids(20 - max_tokens, 2), Tokens(50));
    h.RunAll(20);
    h.ExpectCorrect(by_request);
    h.ExpectCorrect(by_model);
    EXPECT_EQ(h.scheduler.stats().steps, max_tokens);
    EXPECT_EQ(h.scheduler.stats().surplus_tokens, 0);
    EXPECT_EQ(h.runner.tokens_computed(), 10 + max_tokens - 1 + 20 - 1);
    h.ExpectIdle();
  }
}

// An eos is not: one row is surplus. It gives no event, and the blocks go once it has run.
TEST(OverlapTest, AnEosAtAnyPositionLeavesOneSurplusRow) {
  for (int32_t length = 1; length <= 20; ++length) {
    SCOPED_TRACE(length);
    HarnessOptions options = Overlapped();
    const EndingRequest ending = EndingAt(length, options);
    options.eos_ids = {ending.eos};
    SchedulerHarness h(options);
    SamplingParams params = Tokens(40);
    params.ignore_eos = false;
    const uint64_t request = h.Add(ending.prompt, params);
    while (!h.seen(request).finished) {
      ASSERT_TRUE(h.Schedule());
      if (!h.MaySchedule()) h.Commit();
    }
    h.ExpectCorrect(request);
    EXPECT_EQ(h.seen(request).ids[0].size(), static_cast<size_t>(length));
    EXPECT_FALSE(h.scheduler.HasWork());
    EXPECT_EQ(h.scheduler.num_in_flight(), 1);
    EXPECT_EQ(h.scheduler.stats().surplus_tokens, 0);
    EXPECT_EQ(h.blocks.stats().active, h.blocks.BlocksFor(10 + length)) << "the surplus row may still be computed";
    EXPECT_FALSE(h.Schedule()) << "nothing is left to plan";
    h.Commit();
    EXPECT_EQ(h.scheduler.stats().surplus_tokens, 1);
    EXPECT_EQ(h.scheduler.stats().generation_tokens, length);
    h.ExpectIdle();
  }
}

TEST(OverlapTest, WhatASurplusRowWasComputedForIsFoundAgain) {
  HarnessOptions options = Overlapped();
  const EndingRequest ending = EndingAt(9, options);
  options.eos_ids = {ending.eos};
  SchedulerHarness h(options);
  SamplingParams params = Tokens(40);
  params.ignore_eos = false;
  const uint64_t first = h.Add(ending.prompt, params);
  h.RunAll(30);
  std::vector<int32_t> next = ending.prompt;
  next.insert(next.end(), h.seen(first).ids[0].begin(), h.seen(first).ids[0].end());
  next.push_back(1);
  const uint64_t second = h.Add(next, Tokens(3));
  h.RunAll(30);
  h.ExpectCorrect(second);
  EXPECT_EQ(h.seen(second).last_event.cached_tokens, 10 + 9 - 1) << "all but the eos";
}

TEST(OverlapTest, ChunksOfAPromptFollowEachOther) {
  SchedulerHarness h({.max_num_batched_tokens = 8, .max_plans_in_flight = 2});
  const uint64_t request = h.Add(Ids(30), Tokens(4));
  for (const int32_t start : {0, 8, 16, 24}) {
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.sequences[0].start, start);
    EXPECT_EQ(h.plan.sequences[0].sample, start == 24 ? 0 : -1);
    if (!h.MaySchedule()) h.Commit();
  }
  h.RunAll(10);
  h.ExpectCorrect(request);
  EXPECT_EQ(h.runner.tokens_computed(), 30 + 3);
}

TEST(OverlapTest, AnAbortEndsAtOnceAndItsBlocksGoWithTheLastPlan) {
  SchedulerHarness h(Overlapped());
  const uint64_t aborted = h.Add(Ids(20, 1), Tokens(50)), other = h.Add(Ids(20, 2), Tokens(10));
  h.Step();
  ASSERT_TRUE(h.MaySchedule());
  ASSERT_TRUE(h.Schedule());
  h.Abort(aborted);
  EXPECT_TRUE(h.seen(aborted).finished);
  EXPECT_EQ(h.seen(aborted).last_event.finish_reason, FinishReason::kAborted);
  const int32_t held = h.blocks.stats().active;
  h.Commit();
  EXPECT_EQ(h.blocks.stats().active, held) << "the second plan still writes to them";
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.sequences.size(), 1u) << "no further plan holds it";
  h.Commit();
  EXPECT_LT(h.blocks.stats().active, held);
  EXPECT_TRUE(h.seen(aborted).ids[0].empty()) << "both samples came after the end";
  EXPECT_EQ(h.scheduler.stats().surplus_tokens, 2);
  h.RunAll(20);
  h.ExpectCorrect(other);
  h.ExpectIdle();
}

TEST(OverlapTest, AFailedPlanEndsItsRequestsAndLeavesTheNextPlanToOthers) {
  for (const bool eager : {false, true}) {
    HarnessOptions options = Overlapped();
    options.eager_runner = eager;
    SchedulerHarness h(options);
    const uint64_t failed = h.Add(Ids(20, 1), Tokens(50));
    ASSERT_TRUE(h.Schedule());
    const uint64_t other = h.Add(Ids(20, 2), Tokens(10));
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.sequences.size(), 2u);
    h.FailStep(absl::InternalError("the device fell over"));
    EXPECT_EQ(h.seen(failed).last_event.finish_reason, FinishReason::kError);
    h.Commit();
    EXPECT_EQ(h.seen(other).ids[0].size(), 1u);
    EXPECT_EQ(h.scheduler.stats().surplus_tokens, 1);
    h.RunAll(20);
    h.ExpectCorrect(other);
    h.ExpectIdle();
    EXPECT_EQ(h.blocks.stats().cached, h.blocks.BlocksFor(20 + 9)) << "nothing of the failed one is kept";
  }
}

TEST(OverlapTest, BothPlansMayFail) {
  SchedulerHarness h(Overlapped());
  const uint64_t request = h.Add(Ids(20, 1), Tokens(50));
  ASSERT_TRUE(h.Schedule());
  ASSERT_TRUE(h.Schedule());
  h.FailStep(absl::InternalError("the device fell over"));
  h.FailStep(absl::InternalError("and again"));
  EXPECT_EQ(h.seen(request).last_event.error.message(), "the device fell over");
  h.ExpectIdle();
}

// A sequence in flight is not preempted: the next plan is made once nothing is in flight any more.
TEST(OverlapTest, PreemptionWaitsUntilNothingIsInFlight) {
  SchedulerHarness h({.num_blocks = 7, .block_size = 8, .max_plans_in_flight = 2});
  const uint64_t first = h.Add(Ids(16, 1), Tokens(30)), second = h.Add(Ids(16, 2), Tokens(30));
  while (h.scheduler.stats().preemptions == 0) {
    const bool made = h.Schedule();
    if (!made) {
      EXPECT_EQ(h.scheduler.num_in_flight(), 1);
      EXPECT_EQ(h.blocks.num_unused(), 0);
      h.Commit();
      EXPECT_FALSE(h.seen(first).finished);
      ASSERT_TRUE(h.Schedule());
      ASSERT_EQ(h.scheduler.stats().preemptions, 1);
      EXPECT_EQ(h.scheduler.num_in_flight(), 1);
    } else if (!h.MaySchedule()) {
      h.Commit();
    }
  }
  h.RunAll(100);
  h.ExpectCorrect(first);
  h.ExpectCorrect(second);
  h.ExpectIdle();
}

TEST(OverlapTest, SiblingsStartOnceThePromptIsCommitted) {
  SchedulerHarness h(Overlapped());
  const uint64_t request = h.Add(Ids(21), Tokens(6, 3));
  ASSERT_TRUE(h.Schedule());
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.sequences.size(), 1u) << "the first one goes on";
  h.Commit();
  ASSERT_TRUE(h.Schedule());
  // The first one is in flight, and others have come to hold the block that it writes: it waits for its copy.
  EXPECT_EQ(h.plan.sequences.size(), 2u);
  h.RunAll(20);
  h.ExpectCorrect(request);
  h.ExpectIdle();
}

TEST(OverlapTest, IdenticalPromptsAreComputedOnce) {
  for (const int32_t length : {870, 1000, 1008, 1024, 1025}) {  // 870: the last chunk is promised whole
    SchedulerHarness h({.num_blocks = 2000,
                        .block_size = 16,
                        .max_num_batched_tokens = 256,
                        .max_model_len = 2048,
                        .max_plans_in_flight = 2});
    std::vector<int32_t> prompt(length);
    for (int32_t i = 0; i < length; ++i) prompt[i] = i * i % 47;
    std::vector<uint64_t> handles;
    for (int i = 0; i < 16; ++i) handles.push_back(h.Add(prompt, Tokens(1)));
    h.RunAll(30);
    EXPECT_LE(h.runner.tokens_computed(), length + 15);
    EXPECT_LE(h.scheduler.stats().steps, (length + 255) / 256 + 2);
    for (const uint64_t handle : handles) h.ExpectCorrect(handle);
    h.ExpectIdle();
  }
}

// What a follower waits for is published although the producer was aborted, but not if a step of it was lost.
TEST(OverlapTest, AnAbortedProducersStepsAreFoundUpToTheFirstFailedOne) {
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    SchedulerHarness h({.max_num_batched_tokens = 16, .max_plans_in_flight = 2});
    const uint64_t producer = h.Add(Ids(100), Tokens(2)), follower = h.Add(Ids(100), Tokens(2));
    ASSERT_TRUE(h.Schedule());
    ASSERT_TRUE(h.Schedule());
    ASSERT_EQ(h.plan.sequences.size(), 1u) << "the other one follows";
    ASSERT_EQ(h.plan.sequences[0].start, 16);
    h.Abort(producer);
    if (fails) {
      h.FailStep(absl::InternalError("the device fell over"));
    } else {
      h.Commit();
    }
    h.Commit();
    h.RunAll(30);
    h.ExpectCorrect(follower);
    EXPECT_EQ(h.seen(follower).last_event.cached_tokens, fails ? 0 : 32);
    h.ExpectIdle();
  }
}

// Nor does it find a token that the producer would have had: it ended before.
TEST(OverlapTest, AnAbortedProducersLastRowIsNotFound) {
  SchedulerHarness h({.max_num_batched_tokens = 64, .max_plans_in_flight = 2});
  const uint64_t producer = h.Add(Ids(64), Tokens(9)), follower = h.Add(Ids(64), Tokens(2));
  ASSERT_TRUE(h.Schedule());
  ASSERT_TRUE(h.Schedule());
  ASSERT_GE(h.plan.sequences[0].token_from_sample, 0);
  h.Abort(producer);
  h.Commit();
  h.Commit();
  h.RunAll(30);
  h.ExpectCorrect(follower);
  EXPECT_EQ(h.seen(follower).last_event.cached_tokens, 63);
  h.ExpectIdle();
}

TEST(OverlapTest, DeadlinesEndRequestsInFlight) {
  SchedulerHarness h(Overlapped());
  const uint64_t expired = h.Add(Ids(20, 1), Tokens(50), 0, h.now + absl::Seconds(2));
  const uint64_t other = h.Add(Ids(20, 2), Tokens(10));
  h.RunAll(30);
  EXPECT_EQ(h.seen(expired).last_event.error.code(), absl::StatusCode::kDeadlineExceeded);
  h.ExpectCorrectSoFar(expired);
  h.ExpectCorrect(other);
  h.ExpectIdle();
}

TEST(OverlapTest, DepthOneNeverHasATokenOnTheDevice) {
  SchedulerHarness h({});
  h.Add(Ids(10), Tokens(5));
  while (h.scheduler.HasWork()) {
    ASSERT_TRUE(h.Schedule());
    EXPECT_FALSE(h.MaySchedule());
    EXPECT_EQ(h.plan.sequences[0].token_from_sample, -1);
    h.Commit();
  }
  EXPECT_EQ(h.scheduler.stats().surplus_tokens, 0);
}

}  // namespace
}  // namespace quire
