#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

constexpr int32_t kPlaces = 32;

SimLoopOptions Overloaded(PolicyKind policy) {
  SimLoopOptions options;
  options.scheduler.policy = policy;
  options.scheduler.max_num_seqs = kPlaces;
  return options;
}

// Steps whose times teach the model what it needs, before a test's own clock starts.
void Warm(SimLoop& loop) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    loop.Add({.prompt_len = static_cast<int32_t>(10 + random() % 1000),
              .max_tokens = static_cast<int32_t>(1 + random() % 60)});
  }
  loop.RunAll(2000);
}

double SoloSeconds(const SimRequest& request) {
  SimLoopOptions options = Overloaded(PolicyKind::kFcfs);
  options.num_blocks = 128;
  options.record = false;
  SimLoop alone(options);
  const uint64_t handle = alone.Add(request);
  alone.RunAll(5000);
  return absl::ToDoubleSeconds(alone.seen(handle).end - alone.seen(handle).arrival);
}

struct Arrival {
  double seconds;
  SimRequest request;
};

std::vector<Arrival> MakeTrace(uint32_t seed, double per_second) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> gap(per_second);
  std::uniform_real_distribution<double> factor(1.5, 4);
  std::vector<Arrival> trace;
  double now = 0;
  for (int i = 0; i < 600; ++i) {
    now += gap(random);
    SimRequest request{.prompt_len = static_cast<int32_t>(50 + random() % 900),
                       .max_tokens = static_cast<int32_t>(20 + random() % 200)};
    request.deadline = absl::Seconds(factor(random) * SoloSeconds(request));
    trace.push_back({now, request});
  }
  return trace;
}

// Requests of the trace that complete within their deadlines.
int32_t Goodput(PolicyKind policy, const std::vector<Arrival>& trace) {
  SimLoop loop(Overloaded(policy));
  Warm(loop);
  const absl::Time begin = loop.now;
  std::vector<uint64_t> handles;
  size_t next = 0;
  while (next < trace.size() || loop.scheduler.HasWork()) {
    while (next < trace.size() && begin + absl::Seconds(trace[next].seconds) <= loop.now) {
      handles.push_back(loop.Add(trace[next++].request));
    }
    if (loop.Step() == 0 && !loop.scheduler.HasWork() && next < trace.size()) {
      loop.now = begin + absl::Seconds(trace[next].seconds);
    }
  }
  return static_cast<int32_t>(std::count_if(handles.begin(), handles.end(), [&](uint64_t handle) {
    const SimSeen& seen = loop.seen(handle);
    return seen.complete() && seen.end <= seen.arrival + seen.request.deadline;
  }));
}

// Requests a second that the server completes when it is never short of work and nothing has a deadline.
double Capacity() {
  SimLoop loop(Overloaded(PolicyKind::kFcfs));
  std::vector<Arrival> trace = MakeTrace(99, 1);
  for (Arrival& arrival : trace) {
    arrival.request.deadline = absl::InfiniteDuration();
    loop.Add(arrival.request);
  }
  const absl::Time begin = loop.now;
  loop.RunAll(100'000);
  return static_cast<double>(trace.size()) / absl::ToDoubleSeconds(loop.now - begin);
}

TEST(DeadlinePolicyTest, GivesMoreGoodputThanFcfsAtOverload) {
  const double rate = 1.2 * Capacity();
  for (const uint32_t seed : {1, 2, 3}) {
    const std::vector<Arrival> trace = MakeTrace(seed, rate);
    const int32_t fcfs = Goodput(PolicyKind::kFcfs, trace), deadline = Goodput(PolicyKind::kDeadline, trace);
    testing::Test::RecordProperty(absl::StrCat("goodput_", seed), deadline * 1000 / std::max(1, fcfs));
    EXPECT_GE(deadline, 1.3 * fcfs) << "of 600: deadline " << deadline << ", fcfs " << fcfs;
    EXPECT_GE(deadline, 200);
  }
}

TEST(DeadlinePolicyTest, TheTightestStartsFirst) {
  SimLoopOptions options = Overloaded(PolicyKind::kDeadline);
  options.scheduler.max_num_seqs = 1;
  SimLoop loop(options);
  loop.Add({});
  loop.Step();
  const uint64_t none = loop.Add({}), loose = loop.Add({.deadline = absl::Seconds(20)}),
                 tight = loop.Add({.deadline = absl::Seconds(5)}),
                 first = loop.Add({.ttft_target = absl::Milliseconds(500)});
  loop.RunAll(500);
  EXPECT_LT(loop.seen(first).first_token, loop.seen(tight).first_token);
  EXPECT_LT(loop.seen(tight).first_token, loop.seen(loose).first_token);
  EXPECT_LT(loop.seen(loose).first_token, loop.seen(none).first_token);
}

TEST(DeadlinePolicyTest, WhatCannotMakeItIsRefusedAtOnceAndCostsNothing) {
  SimLoop loop(Overloaded(PolicyKind::kDeadline));
  Warm(loop);
  const int64_t steps = loop.scheduler.stats().steps;
  const uint64_t hopeless = loop.Add({.prompt_len = 500, .max_tokens = 100, .deadline = absl::Milliseconds(50)});
  EXPECT_EQ(loop.Step(), 0);
  EXPECT_EQ(loop.scheduler.stats().steps, steps);
  EXPECT_EQ(loop.seen(hopeless).last_event.error.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(loop.seen(hopeless).last_event.error.message().find("50ms"), std::string::npos)
      << loop.seen(hopeless).last_event.error;
  const uint64_t possible = loop.Add({.prompt_len = 500, .max_tokens = 100, .deadline = absl::Seconds(2)});
  loop.RunAll(200);
  EXPECT_TRUE(loop.seen(possible).complete());
}

TEST(DeadlinePolicyTest, ARequestThatAnEosMayEndIsNotRefusedForItsMaxTokens) {
  SimLoop loop(Overloaded(PolicyKind::kDeadline));
  Warm(loop);
  SamplingParams params;
  params.max_tokens = 5000;
  params.ignore_eos = true;
  params.stop_token_ids = {3};
  EngineRequest request = MakeEngineRequest({1, 2, 3}, params, 16, {});
  request.handle = 12345;
  request.deadline = loop.now + absl::Milliseconds(300);
  ASSERT_EQ(loop.scheduler.Add(request), absl::OkStatus());
  loop.scheduler.Schedule(loop.now, &loop.plan, &loop.outputs);
  EXPECT_EQ(loop.plan.sequences.size(), 1u);
}

TEST(DeadlinePolicyTest, StartingWaitsWhileItWouldBreakThePaceOfWhatRuns) {
  SimLoop loop(Overloaded(PolicyKind::kDeadline));
  Warm(loop);
  // Alone about 4.1 ms a step; twelve more rows and a chunk each step would take too long for this one.
  const uint64_t tight = loop.Add({.prompt_len = 16, .max_tokens = 200, .deadline = absl::Milliseconds(200 * 4.6)});
  loop.Step();
  for (int i = 0; i < 20; ++i) loop.Add({.prompt_len = 800, .max_tokens = 100});
  loop.RunAll(5000);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
  EXPECT_LE(loop.seen(tight).end - loop.seen(tight).arrival, absl::Milliseconds(200 * 4.6));
}

TEST(DeadlinePolicyTest, TokenTargetsCutTheChunksOfOthers) {
  SimLoop loop(Overloaded(PolicyKind::kDeadline));
  Warm(loop);
  loop.Add({.prompt_len = 16, .max_tokens = 1000, .tpot_target = absl::Milliseconds(8)});
  loop.Step();
  for (int i = 0; i < 4; ++i) loop.Add({.prompt_len = 3000, .max_tokens = 4});
  int late = 0;
  for (int step = 0; step < 300; ++step) late += loop.Step() > 8e-3;
  EXPECT_LE(late, 3);
  loop.RunAll(5000);
}

TEST(DeadlinePolicyTest, WithoutDeadlinesEverythingFinishes) {
  SimLoop loop(Overloaded(PolicyKind::kDeadline));
  for (int i = 0; i < 200; ++i) loop.Add({.prompt_len = 100 + i, .max_tokens = 20});
  loop.RunAll(5000);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
}

}  // namespace
}  // namespace quire
