// What the scheduler keeps for the sampler: tokens and state of a sequence, up to date at each row, and runs of tokens
// that end it. The fake runner checks tokens and state of every row with rules.

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

SamplingParams WithRules(SamplingParams params) {
  SamplingRules rules;
  rules.repetition_penalty = 2;
  rules.mirostat_tau = 5;
  params.rules = std::make_shared<SamplingRules>(rules);
  params.needs_output = true;
  return params;
}

// Rows without rules overlap as ever; one that looks at tokens waits for the last of them.
TEST(SamplingStateTest, NoRowIsPlannedWhileATokenThatItLooksAtIsInFlight) {
  SchedulerHarness h({.max_plans_in_flight = 2});
  const uint64_t with_rules = h.Add(Ids(10, 1), WithRules(Tokens(6)));
  const uint64_t plain = h.Add(Ids(10, 2), Tokens(6));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.sequences.size(), 2u);
  ASSERT_TRUE(h.Schedule());
  ASSERT_EQ(h.plan.sequences.size(), 1u);
  EXPECT_EQ(h.plan.sequences[0].sequence->group->request.handle, plain);
  EXPECT_EQ(h.plan.samples[0].extras().rules, nullptr);
  EXPECT_TRUE(h.plan.samples[0].extras().tokens.empty());
  h.Commit();
  ASSERT_TRUE(h.Schedule());
  ASSERT_EQ(h.plan.sequences.size(), 2u);
  EXPECT_EQ(h.plan.samples[0].extras().tokens.size(), 11u);
  EXPECT_EQ(h.plan.samples[0].extras().prompt_len, 10);
  EXPECT_EQ(h.plan.samples[0].extras().mirostat_bound, 11);
  h.RunAll(30);
  h.ExpectCorrect(with_rules);
  h.ExpectCorrect(plain);
  EXPECT_EQ(h.scheduler.stats().surplus_tokens, 0);
  h.ExpectIdle();
}

// Rules that look at nothing overlap too.
TEST(SamplingStateTest, RulesThatLookAtNoTokensOverlap) {
  SchedulerHarness h({.max_plans_in_flight = 2});
  SamplingRules rules;
  rules.top_n_sigma = 1;
  SamplingParams params = Tokens(4);
  params.rules = std::make_shared<SamplingRules>(rules);
  h.Add(Ids(10), params);
  ASSERT_TRUE(h.Schedule());
  ASSERT_TRUE(h.Schedule());
  ASSERT_EQ(h.plan.sequences.size(), 1u);
  EXPECT_EQ(h.plan.samples[0].extras().rules, params.rules.get());
}

// Preemption, siblings that ride on a prompt's row, and a prompt computed again: each sequence goes on from its own
// state.
TEST(SamplingStateTest, StateSurvivesPreemptionAndIsEachSequencesOwn) {
  for (const int32_t depth : {1, 2}) {
    SchedulerHarness h({.num_blocks = 14, .max_num_seqs = 6, .max_plans_in_flight = depth});
    std::vector<uint64_t> handles;
    for (int32_t seed = 1; seed <= 4; ++seed) {
      SamplingParams params = WithRules(Tokens(30, 3));
      params.seed = static_cast<uint64_t>(seed);
      handles.push_back(h.Add(Ids(9, seed % 2), params));
    }
    h.RunAll(2000);
    EXPECT_GT(h.scheduler.stats().preemptions, 0);
    for (const uint64_t handle : handles) h.ExpectCorrect(handle);
    h.ExpectIdle();
  }
}

// B090: all of several end ids are masked, and the floor is exact.
TEST(SamplingStateTest, B090NoEndIdComesBeforeMinTokens) {
  bool ended_at_floor = false;
  for (int32_t seed = 1; seed <= 40; ++seed) {
    SchedulerHarness h({.max_model_len = 128, .eos_ids = {7, 9, 11, 13, 15, 17, 19, 21, 23, 25}});
    SamplingParams params = Tokens(60);
    params.seed = static_cast<uint64_t>(seed);
    params.ignore_eos = false;
    params.stop_token_ids = {27, 29};
    params.min_tokens = 5;
    const uint64_t handle = h.Add(Ids(10, seed), params);
    h.RunAll(100);
    h.ExpectCorrect(handle);
    const std::vector<int32_t>& ids = h.seen(handle).ids[0];
    const auto ends = [](int32_t id) { return id >= 7 && id <= 29 && id % 2 == 1; };
    EXPECT_GE(ids.size(), 6u);
    EXPECT_TRUE(std::none_of(ids.begin(), ids.begin() + 5, ends));
    ended_at_floor |= ids.size() == 6;
  }
  EXPECT_TRUE(ended_at_floor);
}

// How many tokens of `output` come if the detection ends it; -1: it does not.
int32_t NaiveEnd(const std::vector<int32_t>& output, const RepetitionDetection& rule, int32_t min_tokens) {
  for (size_t length = static_cast<size_t>(min_tokens) + 1; length <= output.size(); ++length) {
    for (int32_t size = rule.min_pattern_size; size <= rule.max_pattern_size; ++size) {
      const size_t run = static_cast<size_t>(size) * rule.min_count;
      bool repeated = run <= length;
      for (size_t i = 0; repeated && i + size < run; ++i)
        repeated = output[length - 1 - i] == output[length - 1 - i - size];
      if (repeated) return static_cast<int32_t>(length);
    }
  }
  return -1;
}

TEST(SamplingStateTest, RepeatedRunsEndASequence) {
  int32_t ended = 0;
  for (int32_t seed = 1; seed <= 60; ++seed) {
    SchedulerHarness h({.max_model_len = 400, .max_plans_in_flight = 1 + seed % 2});
    SamplingParams params = Tokens(200);
    params.seed = static_cast<uint64_t>(seed);
    params.min_tokens = seed % 3 == 0 ? 60 : 0;
    params.repetition_detection = {.max_pattern_size = 1 + seed % 2, .min_pattern_size = 1, .min_count = 2};
    const uint64_t handle = h.Add(Ids(10, seed), params);
    const std::vector<int32_t> all =
        FakeRunner::ExpectedOutputs(h.seen(handle).request, h.options.max_model_len, h.options.eos_ids)[0];
    const int32_t end = NaiveEnd(all, params.repetition_detection, params.min_tokens);
    h.RunAll(500);
    const SeenRequest& seen = h.seen(handle);
    const bool is_last = end < 0 || end == static_cast<int32_t>(all.size());
    ASSERT_EQ(seen.ids[0].size(), is_last ? all.size() : static_cast<size_t>(end));
    EXPECT_EQ(seen.final_events[0].finish_reason, is_last ? FinishReason::kLength : FinishReason::kRepetition);
    ended += is_last ? 0 : 1;
    h.ExpectIdle();
  }
  EXPECT_GT(ended, 5);
}

}  // namespace
}  // namespace quire
