// Public fault reports about schedulers and request lifecycles (shared/fault-cases.md), one test a row, named by its
// id.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

TEST(SchedulerFaultTest, B032_OneNumberBoundsPrompts) {
  SchedulerHarness h({.max_model_len = 64});
  const auto check = [&h](int32_t length) {
    return h.scheduler.CheckRequest(MakeEngineRequest(Ids(length), Tokens(1), h.options.block_size, h.context));
  };
  EXPECT_EQ(check(63), absl::OkStatus());
  for (const int32_t length : {64, 65, 70, 1000}) {
    EXPECT_EQ(check(length).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(check(length).message().find("max_model_len 64"), std::string_view::npos);
  }
  h.ExpectCorrect([&] {
    const uint64_t longest = h.Add(Ids(63), Tokens(1));
    h.RunAll(10);
    return longest;
  }());
}

TEST(SchedulerFaultTest, B034_APromptAboveTheStepLimitIsComputedInPartsAndAnOverlongOneIsRefused) {
  SchedulerHarness h({.max_num_batched_tokens = 16, .max_model_len = 64});
  EngineRequest overlong = MakeEngineRequest(Ids(80), Tokens(1), h.options.block_size, h.context);
  overlong.handle = 999;
  EXPECT_EQ(h.scheduler.Add(overlong).code(), absl::StatusCode::kInvalidArgument);
  const uint64_t above = h.Add(Ids(60), Tokens(2)), small = h.Add(Ids(3), Tokens(2));
  h.RunAll(20);
  h.ExpectCorrect(above);
  h.ExpectCorrect(small);
  h.ExpectIdle();
}

// What a victim shares with others is not freed by stopping it.
TEST(SchedulerFaultTest, B036_NobodyIsPreemptedWhoseBlocksDoNotBecomeFree) {
  SchedulerHarness h({.num_blocks = 9, .block_size = 8, .prefix_caching = false, .max_num_batched_tokens = 64});
  const uint64_t first = h.Add(Ids(24), Tokens(24));
  h.Step();
  const uint64_t sharing = h.Add(Ids(16, 3), Tokens(9, 2));
  h.Step();
  // Both of the second request hold the same two blocks until they write.
  while (!h.seen(first).finished) {
    ASSERT_TRUE(h.Step());
    for (const ScheduledSequence& entry : h.plan.sequences) ASSERT_GE(entry.num_tokens, 1);
  }
  h.RunAll(200);
  h.ExpectCorrect(first);
  h.ExpectCorrect(sharing);
  EXPECT_EQ(h.seen(first).last_event.num_preemptions, 0);
  // Each preemption had an effect: never more than one for each block that was missing.
  EXPECT_LE(h.scheduler.stats().preemptions, 4);
}

// The blocks of one that has ended go when the plan in flight that holds it is done. Whoever lacks them waits for that
// instead of stopping others.
enum class Ends { kByLength, kByEos, kAborted };

class DeferredFreeTest : public testing::TestWithParam<Ends> {};

TEST_P(DeferredFreeTest, B036_NobodyIsPreemptedForWhatAPlanInFlightIsGoingToFree) {
  const int32_t kOutput = 9;  // then each holds 3 blocks, and all want a fourth
  SamplingParams ending = Tokens(GetParam() == Ends::kByLength ? kOutput : 40);
  int deferred = 0;
  for (int32_t seed = 1; seed <= 12; ++seed) {
    HarnessOptions options = {.num_blocks = 1 + 9, .block_size = 8, .prefix_caching = false, .max_plans_in_flight = 2};
    if (GetParam() == Ends::kByEos) {
      const EngineRequest alone = MakeEngineRequest(Ids(16, seed), ending, options.block_size, KeyContext());
      const auto output = FakeRunner::ExpectedOutputs(alone, options.max_model_len, {})[0];
      const auto eos = std::find(output.begin(), output.end(), output[kOutput - 1]);
      if (eos - output.begin() != kOutput - 1) continue;  // it would end earlier
      options.eos_ids = {*eos};
      ending.ignore_eos = false;
    }
    SchedulerHarness h(options);
    const uint64_t first = h.Add(Ids(16, 100), Tokens(16)), ends = h.Add(Ids(16, seed), ending);
    h.Step();
    const uint64_t last = h.Add(Ids(16, 102), Tokens(16));  // who might be stopped instead
    while (!h.seen(first).finished) {
      const bool wanted = h.blocks.num_unused() == 0 && h.seen(first).ids[0].size() >= kOutput - 1;
      if (wanted && GetParam() == Ends::kAborted && h.scheduler.num_in_flight() > 0 && !h.seen(ends).finished) {
        h.Abort(ends);
        EXPECT_EQ(h.blocks.num_unused(), 0) << "a plan in flight holds it";
      }
      const bool may_overlap = h.scheduler.num_in_flight() == 1;
      const bool made = h.MaySchedule() && h.Schedule();
      const auto is_first = [first](const ScheduledSequence& s) { return s.sequence->group->request.handle == first; };
      const bool passed = !made || std::none_of(h.plan.sequences.begin(), h.plan.sequences.end(), is_first);
      deferred += may_overlap && passed && h.blocks.num_unused() == 0;
      if (!made) h.Commit();
      ASSERT_EQ(h.scheduler.stats().preemptions, 0) << "seed " << seed;
    }
    h.RunAll(100);
    EXPECT_EQ(h.scheduler.stats().preemptions, 0);
    h.ExpectCorrect(first);
    h.ExpectCorrect(last);
    if (GetParam() != Ends::kAborted) h.ExpectCorrect(ends);
    h.ExpectIdle();
  }
  EXPECT_GT(deferred, 0) << "plans that waited for blocks";
}

INSTANTIATE_TEST_SUITE_P(All, DeferredFreeTest, testing::Values(Ends::kByLength, Ends::kByEos, Ends::kAborted));

TEST(SchedulerFaultTest, B037_AfterAPreemptionTheOthersGoOnInTheNextStep) {
  SchedulerHarness h({.num_blocks = 13, .block_size = 4, .prefix_caching = false, .max_num_batched_tokens = 12});
  const uint64_t handles[] = {h.Add(Ids(16, 1), Tokens(20)), h.Add(Ids(16, 2), Tokens(20)),
                              h.Add(Ids(12, 3), Tokens(20))};
  while (h.scheduler.stats().preemptions == 0) ASSERT_TRUE(h.Step());
  EXPECT_EQ(h.scheduler.stats().preemptions, 1);
  EXPECT_EQ(h.scheduler.stats().requests_running, 2);
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.sequences.size(), 2u);
  h.Commit();
  h.RunAll(300);
  for (const uint64_t handle : handles) h.ExpectCorrect(handle);
}

TEST(SchedulerFaultTest, B038_AVictimLosesAllItGotInTheSameStep) {
  SchedulerHarness h({.num_blocks = 11, .block_size = 4, .prefix_caching = false});
  const uint64_t low = h.Add(Ids(14, 1), Tokens(24), 5);  // earlier in the batch: planned first
  h.Step();
  const uint64_t high = h.Add(Ids(22, 2), Tokens(17), -5);
  for (int step = 0; h.scheduler.stats().preemptions == 0; ++step) {
    ASSERT_LT(step, 40);
    ASSERT_TRUE(h.Step());
    int32_t sum = 0;
    for (const ScheduledSequence& entry : h.plan.sequences) {
      EXPECT_EQ(entry.first_row, sum);
      sum += entry.num_tokens;
    }
    EXPECT_EQ(sum, h.plan.num_tokens);
  }
  EXPECT_EQ(h.plan.sequences.size(), 1u);
  h.RunAll(200);
  h.ExpectCorrect(low);
  h.ExpectCorrect(high);
  EXPECT_EQ(h.seen(high).last_event.num_preemptions, 0);
}

TEST(SchedulerFaultTest, B039_AnUrgentRequestRunsInTheNextStepThoughTheBatchIsFull) {
  SchedulerHarness h({.max_num_seqs = 4});
  for (int32_t i = 0; i < 6; ++i) h.Add(Ids(8, i), Tokens(100), 10);
  for (int step = 0; step < 5; ++step) h.Step();
  const uint64_t urgent = h.Add(Ids(8, 9), Tokens(1), 0);
  h.Step();
  EXPECT_TRUE(h.seen(urgent).finished);
  h.RunAll(1000);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

TEST(SchedulerFaultTest, B040_FifteenRequestsOfMixedPriorityOnTenPlacesAllFinishRight) {
  SchedulerHarness h({.num_blocks = 40, .max_num_seqs = 10});
  for (int32_t i = 0; i < 15; ++i) h.Add(Ids(20, i), Tokens(20));
  for (int step = 0; step < 5; ++step) h.Step();
  for (int32_t i = 15; i < 20; ++i) h.Add(Ids(20, i), Tokens(20), -100);
  h.RunAll(1000);
  EXPECT_GT(h.scheduler.stats().preemptions, 0);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
  h.ExpectIdle();
}

TEST(SchedulerFaultTest, B041_MoreSequencesThanPlacesRunInWaves) {
  SchedulerHarness h({.max_num_seqs = 4});
  const uint64_t handle = h.Add(Ids(10), Tokens(12, 9));
  h.RunAll(200);
  h.ExpectCorrect(handle);
  EXPECT_EQ(h.seen(handle).ids.size(), 9u);
}

TEST(SchedulerFaultTest, B042_EachOfNSequencesHasItsOwnTokensAndEnd) {
  SchedulerHarness h({});
  SamplingParams params = Tokens(32, 4);
  params.temperature = 1;
  params.seed = 11;
  const uint64_t handle = h.Add(Ids(10), params);
  h.RunAll(100);
  h.ExpectCorrect(handle);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(h.seen(handle).ids[i].size(), 32u);
    EXPECT_EQ(h.seen(handle).final_events[i].finish_reason, FinishReason::kLength);
    for (int32_t j = 0; j < i; ++j) EXPECT_NE(h.seen(handle).ids[i], h.seen(handle).ids[j]);
  }
}

TEST(SchedulerFaultTest, B045_ChunksOfAPromptGiveNoTokensAlsoWithScores) {
  for (const bool scores : {false, true}) {
    SchedulerHarness h({.max_num_batched_tokens = 8});
    SamplingParams params = Tokens(5);
    if (scores) params.prompt_logprobs = 0;
    const uint64_t handle = h.Add(Ids(60), params);
    for (int step = 0; step < 7; ++step) {
      ASSERT_TRUE(h.Step());
      EXPECT_TRUE(h.plan.samples.empty());
      EXPECT_TRUE(h.seen(handle).ids[0].empty());
    }
    h.RunAll(20);
    h.ExpectCorrect(handle);
    for (const int32_t id : h.seen(handle).ids[0]) EXPECT_GE(id, 0);
  }
}

TEST(SchedulerFaultTest, B046_AShortPromptDoesNotWaitForALongOne) {
  SimLoop loop({.scheduler = {.max_num_batched_tokens = 256}, .num_blocks = 16'000, .max_model_len = 140'000});
  const uint64_t lengthy = loop.Add({.prompt_len = 128'000, .max_tokens = 2});
  for (int step = 0; step < 20; ++step) loop.Step();
  const uint64_t brief = loop.Add({.prompt_len = 10, .max_tokens = 2});
  loop.Step();
  EXPECT_EQ(loop.seen(brief).tokens, 1);
  EXPECT_EQ(loop.seen(lengthy).tokens, 0);
}

TEST(SchedulerFaultTest, B048_WhatAnAbortedRequestHeldIsFreeAfterTheStepInFlight) {
  SchedulerHarness h({});
  std::vector<uint64_t> endless;
  for (int32_t i = 0; i < 3; ++i) endless.push_back(h.Add(Ids(10, i), Tokens(100)));
  h.Step();
  ASSERT_TRUE(h.Schedule());
  for (const uint64_t handle : endless) h.Abort(handle);
  EXPECT_GT(h.blocks.stats().active, 0) << "the step reads them";
  h.Commit();
  EXPECT_FALSE(h.Step());
  h.ExpectIdle();
}

TEST(SchedulerFaultTest, B050_ThreeRoundsOfMassAbortLeaveNothingBehind) {
  SchedulerHarness h({.num_blocks = 60, .max_num_seqs = 16});
  for (int round = 0; round < 3; ++round) {
    std::vector<uint64_t> handles;
    for (int32_t i = 0; i < 300; ++i) handles.push_back(h.Add(Ids(5 + i % 40, i), Tokens(30, 1 + i % 3)));
    for (int step = 0; step < 6; ++step) h.Step();
    ASSERT_TRUE(h.Schedule());
    for (const uint64_t handle : handles) h.Abort(handle);
    h.Commit();
    h.ExpectIdle();
    const uint64_t next = h.Add(Ids(9), Tokens(3));
    h.RunAll(10);
    h.ExpectCorrect(next);
  }
}

// The front end gives each request a handle of its own, so here only a bug could repeat one (clients' ids:
// tests/server).
TEST(SchedulerFaultTest, B052_ALiveHandleIsRefusedAndTheFirstRequestIsUntouched) {
  SchedulerHarness h({});
  const uint64_t handle = h.Add(Ids(9), Tokens(10));
  h.Step();
  EngineRequest twin = MakeEngineRequest(Ids(5, 2), Tokens(3), h.options.block_size, h.context);
  twin.handle = handle;
  EXPECT_EQ(h.scheduler.Add(twin).code(), absl::StatusCode::kAlreadyExists);
  h.RunAll(20);
  h.ExpectCorrect(handle);
  h.ExpectIdle();
}

TEST(SchedulerFaultTest, B053_ALateAbortOfAnOldRequestDoesNotTouchANewOne) {
  SchedulerHarness h({});
  for (int round = 0; round < 200; ++round) {
    const uint64_t old = h.Add(Ids(9, round), Tokens(10));
    if (round % 2 == 0) h.Step();
    h.Abort(old);
    const uint64_t renewed = h.Add(Ids(9, round), Tokens(4));
    h.Abort(old);
    h.RunAll(10);
    h.ExpectCorrect(renewed);
  }
  h.ExpectIdle();
}

// min_tokens, sampling positions and what penalties look at know outputs from the prompt. Ids of a real model:
// tests/integration/overload_faults_test.cc.
TEST(SchedulerFaultTest, B055_AfterARecomputationOutputIsStillOutput) {
  SchedulerHarness h({.num_blocks = 24, .block_size = 4});
  const auto rules = std::make_shared<SamplingRules>();
  rules->frequency_penalty = 1;
  std::vector<uint64_t> handles;
  for (int32_t i = 0; i < 8; ++i) {
    SamplingParams params = Tokens(45);
    params.ignore_eos = false;
    params.min_tokens = 40;
    params.temperature = 1;
    params.seed = 40 + i;
    params.rules = rules;
    params.needs_output = true;
    handles.push_back(h.Add(Ids(9, i), params));
  }
  while (h.scheduler.HasWork()) {
    ASSERT_TRUE(h.Schedule());
    for (const ScheduledSequence& entry : h.plan.sequences) {
      if (entry.sample < 0) continue;
      const SampleRow& row = h.plan.samples[entry.sample];
      EXPECT_EQ(row.output_position, static_cast<uint32_t>(entry.sequence->num_tokens() - 9));
      EXPECT_EQ(row.extras().banned_ids.empty(), row.output_position >= 40);
      EXPECT_EQ(row.extras().tokens.size(), entry.sequence->tokens.size());
      EXPECT_EQ(row.extras().prompt_len, 9);
    }
    h.Commit();
  }
  EXPECT_GT(h.scheduler.stats().preemptions, 0);
  for (const uint64_t handle : handles) {
    h.ExpectCorrect(handle);
    EXPECT_GT(h.seen(handle).ids[0].size(), 40u);
  }
}

TEST(SchedulerFaultTest, B056_AnOverloadedPoolAdvancesInEachStepAndEnds) {
  SchedulerHarness h({.num_blocks = 12, .block_size = 8, .max_num_seqs = 256});
  for (int32_t i = 0; i < 100; ++i) h.Add(Ids(20, i), Tokens(60));
  int64_t tokens = -1;
  for (int32_t steps = 0; h.scheduler.HasWork(); ++steps) {
    ASSERT_LT(steps, 20'000);
    ASSERT_TRUE(h.Step()) << "a step that does nothing";
    EXPECT_GT(h.runner.tokens_computed(), tokens);
    tokens = h.runner.tokens_computed();
  }
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
  h.ExpectIdle();
}

}  // namespace
}  // namespace quire
