#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/host_copy_cost.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

// Two sequences of 53 tokens in blocks of 8, which do not fit side by side.
constexpr int32_t kPrompt = 24, kOutput = 30;
HarnessOptions Crowded(PreemptionMode mode) {
  HarnessOptions options;
  options.num_blocks = 1 + 8;
  options.num_host_blocks = 32;
  options.preemption = mode;
  return options;
}

// Runs them and checks what they give.
void RunBoth(SchedulerHarness* h) {
  const uint64_t a = h->Add(Ids(kPrompt, 1), Tokens(kOutput)), b = h->Add(Ids(kPrompt, 2), Tokens(kOutput));
  h->RunAll(1000);
  h->ExpectCorrect(a);
  h->ExpectCorrect(b);
  h->ExpectIdle();
  EXPECT_GE(h->scheduler.stats().preemptions, 1);
}

TEST(HostTierSchedulerTest, ASwappedSequenceComputesNothingTwice) {
  SchedulerHarness h(Crowded(PreemptionMode::kSwap));
  RunBoth(&h);
  EXPECT_EQ(h.scheduler.stats().swaps, h.scheduler.stats().preemptions);
  EXPECT_GE(h.blocks.stats().copied_in, 1);
  EXPECT_EQ(h.runner.tokens_computed(), 2 * (kPrompt + kOutput - 1));
}

TEST(HostTierSchedulerTest, ForcedRecomputationComputesAgain) {
  SchedulerHarness h(Crowded(PreemptionMode::kRecompute));
  RunBoth(&h);
  EXPECT_EQ(h.scheduler.stats().swaps, 0);
  EXPECT_GT(h.runner.tokens_computed(), 2 * (kPrompt + kOutput - 1));
}

TEST(HostTierSchedulerTest, WhatTheCacheMustNotKnowIsSwappedTooAndStaysPrivate) {
  for (const bool caching : {true, false}) {
    HarnessOptions options = Crowded(PreemptionMode::kSwap);
    options.prefix_caching = caching;
    SchedulerHarness h(options);
    h.writes_cache = !caching;
    RunBoth(&h);
    EXPECT_EQ(h.runner.tokens_computed(), 2 * (kPrompt + kOutput - 1));
    EXPECT_EQ(h.blocks.stats().host_used, 0);
    const uint64_t later = h.Add(Ids(kPrompt, 1), Tokens(1));
    h.RunAll(10);
    EXPECT_EQ(h.seen(later).last_event.cached_tokens, 0);
  }
}

TEST(HostTierSchedulerTest, WhatTheHostHasNoRoomForIsComputedAgainAndNoSwap) {
  HarnessOptions options = Crowded(PreemptionMode::kSwap);
  options.num_host_blocks = 2;
  SchedulerHarness h(options);
  h.reads_cache = h.writes_cache = false;
  RunBoth(&h);
  EXPECT_EQ(h.scheduler.stats().swaps, 0);
  EXPECT_EQ(h.blocks.stats().copied_out, 0);
  EXPECT_GT(h.runner.tokens_computed(), 2 * (kPrompt + kOutput - 1));
}

TEST(HostTierSchedulerTest, AHeldRequestComesBackFromTheHost) {
  SchedulerHarness h(Crowded(PreemptionMode::kSwap));
  h.reads_cache = false;
  const uint64_t held = h.Add(Ids(kPrompt, 1), Tokens(kOutput));
  for (int32_t step = 0; step < 10; ++step) h.Step();
  h.scheduler.SetHeld(held, true);
  EXPECT_EQ(h.blocks.stats().active, 0);
  EXPECT_GE(h.blocks.stats().host_used, 4);
  const uint64_t other = h.Add(Ids(40, 2), Tokens(20));
  h.RunAll(100);
  h.scheduler.SetHeld(held, false);
  h.RunAll(100);
  h.ExpectCorrect(other);
  h.ExpectCorrect(held);
  EXPECT_EQ(h.runner.tokens_computed(), kPrompt + kOutput - 1 + 40 + 20 - 1);
}

TEST(HostTierSchedulerTest, AnAbortedSwappedRequestLeavesNothingOnTheHost) {
  SchedulerHarness h(Crowded(PreemptionMode::kSwap));
  h.writes_cache = false;
  const uint64_t a = h.Add(Ids(kPrompt, 1), Tokens(kOutput)), b = h.Add(Ids(kPrompt, 2), Tokens(kOutput));
  while (h.blocks.stats().host_used == 0) ASSERT_TRUE(h.Step());
  h.Abort(b);
  EXPECT_EQ(h.blocks.stats().host_used, 0);
  h.RunAll(100);
  h.ExpectCorrect(a);
}

TEST(HostTierSchedulerTest, ASequenceWhoseCopyFailedWithAnotherStepBeginsAgain) {
  for (const bool writes : {true, false}) {
    SchedulerHarness h(Crowded(PreemptionMode::kSwap));
    h.writes_cache = writes;
    const uint64_t a = h.Add(Ids(kPrompt, 1), Tokens(kOutput)), b = h.Add(Ids(kPrompt, 2), Tokens(kOutput));
    // The plan that sends b's blocks to the host, with a in it and b not.
    const auto copies_out = [&] {
      return std::any_of(h.plan.copies.begin(), h.plan.copies.end(),
                         [&](const BlockCopy& copy) { return h.blocks.IsHost(copy.dst); });
    };
    while (true) {
      ASSERT_TRUE(h.Schedule());
      if (copies_out()) break;
      h.Commit();
    }
    ASSERT_EQ(h.plan.sequences.size(), 1u);
    h.FailStep(absl::InternalError("the device fell over"));
    EXPECT_EQ(h.seen(a).last_event.finish_reason, FinishReason::kError);
    h.RunAll(200);
    h.ExpectCorrect(b);
    h.ExpectIdle();
  }
}

// Steps of a millisecond a token; `copy_seconds` for each block that is copied. The first plan that copies finds out.
SchedulerStats RunMeasured(double copy_seconds) {
  SchedulerHarness h(Crowded(PreemptionMode::kAuto));
  for (int32_t i = 0; i < 24; ++i) h.Add(Ids(kPrompt, i), Tokens(kOutput));
  bool is_priced = false;
  while (h.scheduler.HasWork()) {
    h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
    if (h.plan.empty()) continue;
    h.runner.Run(h.plan, &h.result);
    const auto copies = std::count_if(h.plan.copies.begin(), h.plan.copies.end(), [&](const BlockCopy& copy) {
      return h.blocks.IsHost(copy.src) || h.blocks.IsHost(copy.dst);
    });
    if (!is_priced) {
      EXPECT_LE(copies, 1);
    }
    is_priced = is_priced || copies > 0;
    h.result.host_copy_seconds = static_cast<double>(copies) * copy_seconds;
    const double seconds = 1e-3 * h.plan.num_tokens + h.result.host_copy_seconds;
    h.scheduler.Commit(h.plan, h.result, h.now, &h.outputs, seconds);
    EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
    h.now += absl::Seconds(1);
  }
  EXPECT_TRUE(is_priced);
  return h.scheduler.stats();
}

TEST(HostTierSchedulerTest, AutoSwapsWhereCopiesAreCheaperThanComputing) {
  const SchedulerStats cheap = RunMeasured(1e-4), dear = RunMeasured(0.1);
  EXPECT_GE(cheap.preemptions, 10);
  EXPECT_EQ(cheap.swaps, cheap.preemptions);
  EXPECT_GE(dear.preemptions, 10);
  EXPECT_LE(dear.swaps, dear.preemptions / 4) << "only until it is known";
}

// The first in rank lacks a block. Behind it stand one that shares a long prefix with it and has little of its own, and
// one that has more, all of its own. The cache may not know either. Returns the handle that is stopped, 2 or 3.
uint64_t Victim(HarnessOptions options, double copy_seconds) {
  options.num_blocks = 1 + 16;
  SchedulerHarness h(options);
  const auto step = [&](double seconds_per_copy) {
    h.scheduler.Schedule(h.now, &h.plan, &h.outputs);
    if (h.plan.empty()) return;
    h.runner.Run(h.plan, &h.result);
    h.result.host_copy_seconds = seconds_per_copy * static_cast<double>(h.plan.copies.size());
    h.scheduler.Commit(h.plan, h.result, h.now, &h.outputs, 1e-3 * h.plan.num_tokens + h.result.host_copy_seconds);
  };
  const auto prompt = [](int32_t own, int32_t seed) {
    std::vector<int32_t> ids = Ids(64, 9);
    for (int32_t i = 0; i < own; ++i) ids.push_back(seed);
    return ids;
  };
  if (copy_seconds > 0) {  // so that both prices are known
    h.reads_cache = h.writes_cache = false;
    for (int i = 0; i < 8; ++i) h.Add(Ids(40, 20 + i), Tokens(20));
    while (h.scheduler.HasWork()) step(copy_seconds);
    EXPECT_GE(h.blocks.stats().copied_in, 1);
  }
  h.reads_cache = true, h.writes_cache = true;
  const uint64_t first = h.Add(prompt(7, 1), Tokens(30));
  step(copy_seconds);
  h.writes_cache = false;
  const uint64_t sharing = h.Add(prompt(10, 2), Tokens(30));
  h.reads_cache = false;
  const uint64_t apart = h.Add(Ids(33, 3), Tokens(30));
  const int64_t before = h.scheduler.stats().preemptions;
  while (h.scheduler.stats().preemptions == before) step(copy_seconds);
  EXPECT_EQ(h.scheduler.stats().preemptions, before + 1);
  EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
  std::vector<uint64_t> planned;
  for (const ScheduledSequence& entry : h.plan.sequences) planned.push_back(entry.sequence->group->request.handle);
  EXPECT_EQ(planned.front(), first);
  EXPECT_EQ(planned.size(), 2u);
  while (h.scheduler.HasWork()) step(copy_seconds);
  return planned.back() == sharing ? apart - first + 1 : sharing - first + 1;
}

TEST(HostTierSchedulerTest, TheVictimLosesTheLessOfComputingAndCopying) {
  constexpr uint64_t kSharing = 2, kApart = 3;
  EXPECT_EQ(Victim({}, 0), kSharing) << "fewer tokens to compute again";
  HarnessOptions options = {.num_host_blocks = 64, .preemption = PreemptionMode::kSwap};
  EXPECT_EQ(Victim(options, 0), kApart) << "fewer blocks to copy";
  options.preemption = PreemptionMode::kRecompute;
  EXPECT_EQ(Victim(options, 0), kSharing);
  options.preemption = PreemptionMode::kAuto;
  EXPECT_EQ(Victim(options, 5e-4), kApart) << "a copy costs what half a token does";
  EXPECT_EQ(Victim(options, 1), kSharing) << "copies cost more than anything";
}

TEST(HostCopyCostTest, IsLearntAndForgottenWhileNothingIsCopied) {
  HostCopyCost cost;
  EXPECT_EQ(cost.seconds_per_block(), 0);
  cost.Learn(4, 2.0);
  EXPECT_DOUBLE_EQ(cost.seconds_per_block(), 0.5);
  for (int i = 0; i < 60; ++i) cost.Learn(10, 1.0);
  EXPECT_NEAR(cost.seconds_per_block(), 0.1, 1e-3);
  cost.Learn(1, -1.0);
  EXPECT_NEAR(cost.seconds_per_block(), 0.1, 1e-3) << "not a time";
  for (int i = 0; i < 700; ++i) cost.Learn(0, 0);
  EXPECT_NEAR(cost.seconds_per_block(), 0.05, 5e-3);
}

}  // namespace
}  // namespace quire
