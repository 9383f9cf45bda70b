#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

SimLoopOptions With(PolicyKind policy, int32_t max_num_seqs = 16) {
  SimLoopOptions options;
  options.scheduler.policy = policy;
  options.scheduler.max_num_seqs = max_num_seqs;
  return options;
}

// --- fair

// Service of two tenants over weight by step, while both always have waiting work: the first offers ten requests for
// each of the other's. Returns the worst relative difference over any `window` consecutive steps.
double WorstUnfairness(double weight_a, double weight_b, uint32_t seed, int window) {
  SimLoopOptions options = With(PolicyKind::kFair);
  options.scheduler.tenant_weights = {{"a", weight_a}, {"b", weight_b}};
  SimLoop loop(options);
  std::mt19937 random(seed);
  std::vector<uint64_t> without_token;
  std::vector<double> sums[2] = {{0}, {0}};
  for (int step = 0; step < 6000; ++step) {
    std::erase_if(without_token, [&loop](uint64_t handle) { return loop.seen(handle).tokens > 0; });
    int32_t waiting[2] = {0, 0};
    for (const uint64_t handle : without_token) ++waiting[loop.seen(handle).request.tenant == "b"];
    const auto add = [&](const char* tenant, int32_t prompt, int32_t output) {
      without_token.push_back(loop.Add({.prompt_len = prompt, .max_tokens = output, .tenant = tenant}));
    };
    if (waiting[1] < 20) {
      for (int i = 0; i < 10 && waiting[0] < 200; ++i) {
        add("a", 10 + static_cast<int32_t>(random() % 150), 20 + static_cast<int32_t>(random() % 80));
      }
      add("b", 10 + static_cast<int32_t>(random() % 60), 20 + static_cast<int32_t>(random() % 150));
    }
    loop.Step();
    double served[2] = {0, 0};
    for (const SimPart& part : loop.parts()) {
      served[loop.seen(part.handle).request.tenant == "b"] += part.num_tokens;
    }
    sums[0].push_back(sums[0].back() + served[0] / weight_a);
    sums[1].push_back(sums[1].back() + served[1] / weight_b);
  }
  double worst = 0;
  for (size_t from = 100; from + window < sums[0].size(); ++from) {
    const double a = sums[0][from + window] - sums[0][from], b = sums[1][from + window] - sums[1][from];
    worst = std::max(worst, std::abs(a - b) / std::max(a, b));
  }
  return worst;
}

TEST(FairPolicyTest, ServiceOverWeightIsEqualOverAnyThousandSteps) {
  EXPECT_LE(WorstUnfairness(1, 1, 1, 1000), 0.1);
  EXPECT_LE(WorstUnfairness(1, 1, 2, 1000), 0.1);
  EXPECT_LE(WorstUnfairness(3, 1, 3, 1000), 0.1);
}

TEST(FairPolicyTest, AnIdleTenantSavesNothingUp) {
  SimLoop loop(With(PolicyKind::kFair, 4));
  for (int i = 0; i < 400; ++i) loop.Add({.prompt_len = 20, .max_tokens = 20, .tenant = "steady"});
  for (int step = 0; step < 500; ++step) loop.Step();
  // Its account is far behind, and yet it gets no more than half from now on.
  for (int i = 0; i < 400; ++i) loop.Add({.prompt_len = 20, .max_tokens = 20, .tenant = "late"});
  double served[2] = {0, 0};
  for (int step = 0; step < 400; ++step) {
    loop.Step();
    for (const SimPart& part : loop.parts()) {
      served[loop.seen(part.handle).request.tenant == "late"] += part.num_tokens;
    }
  }
  EXPECT_NEAR(served[1] / (served[0] + served[1]), 0.5, 0.05);
}

TEST(FairPolicyTest, WhatOneTenantLeavesTheOtherGets) {
  SimLoop loop(With(PolicyKind::kFair, 8));
  for (int i = 0; i < 8; ++i) loop.Add({.prompt_len = 20, .max_tokens = 50, .tenant = "only"});
  loop.Step();
  EXPECT_EQ(loop.scheduler.stats().requests_running, 8);
}

TEST(FairPolicyTest, AnAttackerWithManyNamesIsForgottenAndServiceGoesOn) {
  SimLoop loop(With(PolicyKind::kFair, 4));
  for (int i = 0; i < 3000; ++i) loop.Add({.prompt_len = 2, .max_tokens = 1, .tenant = absl::StrCat("t", i)});
  loop.RunAll(5000);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
}

TEST(FairPolicyTest, WithinATenantPrioritiesCount) {
  SimLoop loop(With(PolicyKind::kFair, 1));
  loop.Add({.tenant = "a"});
  loop.Step();
  const uint64_t later = loop.Add({.priority = 1, .tenant = "a"}), sooner = loop.Add({.priority = 0, .tenant = "a"});
  loop.RunAll(500);
  EXPECT_LT(loop.seen(sooner).first_token, loop.seen(later).first_token);
}

// --- fcfs, priority

TEST(FcfsPolicyTest, PrioritiesDoNotCount) {
  SimLoop loop(With(PolicyKind::kFcfs, 1));
  const uint64_t first = loop.Add({.priority = 5}), second = loop.Add({.priority = -5});
  loop.RunAll(500);
  EXPECT_LT(loop.seen(first).end, loop.seen(second).first_token);
}

// Priority inversion: low-priority work holds all places, and urgent work does not wait for it.
TEST(PriorityPolicyTest, UrgentWorkTakesAPlaceFromWorkOfLowerPriorityWithinAStep) {
  SimLoop loop(With(PolicyKind::kPriority, 4));
  for (int i = 0; i < 4; ++i) loop.Add({.max_tokens = 400, .priority = i == 2 ? 7 : 3});
  for (int step = 0; step < 10; ++step) loop.Step();
  const uint64_t equal = loop.Add({.max_tokens = 1, .priority = 7});
  loop.Step();
  EXPECT_EQ(loop.PartOf(equal), nullptr) << "equal work waits its turn";
  const uint64_t urgent = loop.Add({.max_tokens = 1, .priority = 0});
  loop.Step();
  ASSERT_NE(loop.PartOf(urgent), nullptr);
  EXPECT_EQ(loop.PartOf(3), nullptr) << "the lowest priority gives way";
  loop.RunAll(2000);
  EXPECT_EQ(loop.seen(3).last_event.num_preemptions, 1);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
}

TEST(PriorityPolicyTest, UrgentWorkTakesBlocksFromWorkOfLowerPriority) {
  SimLoopOptions options = With(PolicyKind::kPriority, 8);
  options.num_blocks = 101;
  SimLoop loop(options);
  for (int i = 0; i < 3; ++i) loop.Add({.prompt_len = 500, .max_tokens = 30, .priority = 2});
  loop.Step();
  const uint64_t urgent = loop.Add({.prompt_len = 600, .max_tokens = 4, .priority = 1});
  loop.Step();
  EXPECT_NE(loop.PartOf(urgent), nullptr);
  // Not more of them were stopped than it needed.
  EXPECT_EQ(loop.scheduler.stats().preemptions, 2);
  loop.RunAll(500);
}

TEST(PriorityPolicyTest, NothingIsStoppedForUrgentWorkThatWouldNotFitEvenThen) {
  SimLoopOptions options = With(PolicyKind::kPriority, 8);
  options.num_blocks = 101;
  SimLoop loop(options);
  loop.Add({.prompt_len = 1000, .max_tokens = 30, .priority = 0});
  loop.Add({.prompt_len = 400, .max_tokens = 30, .priority = 2});
  loop.Step();
  const uint64_t urgent = loop.Add({.prompt_len = 700, .max_tokens = 4, .priority = 1});
  loop.Step();
  EXPECT_EQ(loop.PartOf(urgent), nullptr);
  EXPECT_EQ(loop.scheduler.stats().preemptions, 0);
  loop.RunAll(500);
}

// --- classes

TEST(OfflineClassTest, OfflineWorkFillsWhatIsLeftAndYieldsWithinAStep) {
  for (const PolicyKind policy : {PolicyKind::kFcfs, PolicyKind::kPriority, PolicyKind::kDeadline, PolicyKind::kFair}) {
    SimLoopOptions options = With(policy, 4);
    options.scheduler.max_num_batched_tokens = 256;
    SimLoop loop(options);
    for (int i = 0; i < 6; ++i) loop.Add({.prompt_len = 300, .max_tokens = 100, .priority = -1, .offline = true});
    for (int step = 0; step < 8; ++step) loop.Step();
    EXPECT_EQ(loop.scheduler.stats().requests_running, 4);
    std::vector<uint64_t> online;
    for (int i = 0; i < 3; ++i) online.push_back(loop.Add({.prompt_len = 80, .max_tokens = 30, .priority = 5}));
    loop.Step();
    for (const uint64_t handle : online) EXPECT_NE(loop.PartOf(handle), nullptr);
    int64_t offline_tokens = 0;
    for (const SimPart& part : loop.parts()) {
      if (loop.seen(part.handle).request.offline) offline_tokens += part.num_tokens;
    }
    EXPECT_EQ(offline_tokens, 1) << "the one that kept its place decodes";
    loop.RunAll(2000);
    for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
  }
}

TEST(OfflineClassTest, OnlinePromptsTakeTheWholeBudgetAndOfflineRowsWait) {
  SimLoopOptions options = With(PolicyKind::kPriority, 8);
  options.scheduler.max_num_batched_tokens = 64;
  SimLoop loop(options);
  const uint64_t offline = loop.Add({.prompt_len = 16, .max_tokens = 50, .offline = true});
  loop.Step();
  const uint64_t online = loop.Add({.prompt_len = 640, .max_tokens = 2});
  for (int step = 0; step < 10; ++step) {
    loop.Step();
    ASSERT_NE(loop.PartOf(online), nullptr);
    EXPECT_EQ(loop.PartOf(online)->num_tokens, 64);
    EXPECT_EQ(loop.PartOf(offline), nullptr);
  }
  loop.RunAll(100);
}

TEST(OfflineClassTest, OfflineRowsGiveWayToTheLatencyTarget) {
  SimLoopOptions options = With(PolicyKind::kPriority, 64);
  options.scheduler.itl_target = absl::Milliseconds(7);
  SimLoop loop(options);
  for (int i = 0; i < 10; ++i) loop.Add({.max_tokens = 1500});
  for (int i = 0; i < 40; ++i) loop.Add({.max_tokens = 200, .offline = true});
  int late = 0;
  for (int step = 0; step < 1000; ++step) late += loop.Step() > 7e-3;
  EXPECT_LT(late, 20);
  EXPECT_GT(loop.scheduler.stats().generation_tokens, 12'000) << "offline work ran beside";
  loop.RunAll(20'000);
}

// --- order within a lane

TEST(PrefixOrderTest, WhatIsInTheCacheStartsFirstButNobodyIsOvertakenForEver) {
  SimLoopOptions options = With(PolicyKind::kPriority, 1);
  SimLoop loop(options);
  loop.Add({.prompt_len = 320, .max_tokens = 1, .prompt_seed = 7});
  loop.RunAll(10);
  loop.Add({.max_tokens = 2});
  loop.Step();
  const uint64_t cold = loop.Add({.prompt_len = 320, .max_tokens = 1});
  // Requests that find the first prompt keep coming.
  for (int step = 0; !loop.seen(cold).finished(); ++step) {
    ASSERT_LT(step, 200);
    loop.Add({.prompt_len = 320, .max_tokens = 1, .prompt_seed = 7});
    loop.Step();
  }
  EXPECT_GE(loop.scheduler.stats().prefix_hit_tokens, 10 * 300) << "some overtook";
  int overtook = 0;
  for (const auto& [handle, seen] : loop.all_seen()) {
    overtook += handle > cold && seen.first_token < loop.seen(cold).first_token;
  }
  EXPECT_EQ(overtook, 16);
}

TEST(PrefixOrderTest, SmallRequestsPassOneThatDoesNotFitAWhile) {
  SimLoopOptions options = With(PolicyKind::kPriority, 16);
  options.num_blocks = 101;
  SimLoop loop(options);
  const uint64_t running = loop.Add({.prompt_len = 800, .max_tokens = 600});
  loop.Step();
  const uint64_t large = loop.Add({.prompt_len = 1200, .max_tokens = 4});
  std::vector<uint64_t> small;
  for (int i = 0; i < 40; ++i) small.push_back(loop.Add({.prompt_len = 20, .max_tokens = 10}));
  while (!loop.seen(running).finished()) loop.Step();
  const auto passed = std::count_if(small.begin(), small.end(), [&](uint64_t h) { return loop.seen(h).finished(); });
  EXPECT_EQ(passed, 16);
  loop.Step();
  EXPECT_NE(loop.PartOf(large), nullptr);
  loop.RunAll(500);
}

}  // namespace
}  // namespace quire
