#include "scheduler/speculation.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/ngram_finder.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

// By definition.
int32_t NaiveFind(const std::vector<int32_t>& text) {
  constexpr int32_t kSize = NgramFinder::kSize;
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t end = size - 1; end >= kSize; --end) {
    if (std::equal(text.end() - kSize, text.end(), text.begin() + end - kSize)) return end;
  }
  return -1;
}

TEST(NgramFinderTest, FindsTheLatestEarlierOccurrenceWhateverTheText) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t alphabet = 1 + seed % 8;
    std::vector<int32_t> text;
    NgramFinder finder(300);
    while (text.size() < 300) {
      for (uint32_t i = random() % 20; i > 0; --i) text.push_back(static_cast<int32_t>(random() % alphabet));
      text.resize(std::min<size_t>(text.size(), 300));
      ASSERT_EQ(finder.Find(text), NaiveFind(text)) << text.size();
    }
  }
}

TEST(NgramFinderTest, ATextLongerThanItsMemoryFindsWhatCameFirst) {
  NgramFinder finder(8);  // 16 slots, 8 of them used at most
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 1000; ++i) text.push_back(i);
  EXPECT_EQ(finder.Find(text), -1);
  text.insert(text.end(), {2, 3, 4});
  EXPECT_EQ(finder.Find(text), 5);
  text.insert(text.end(), {500, 501, 502});
  EXPECT_EQ(finder.Find(text), -1);
}

std::vector<int32_t> Drafts(const Speculation& speculation, int32_t count) {
  std::vector<int32_t> drafts;
  for (int32_t i = 0; i < count; ++i) drafts.push_back(speculation.draft(i));
  return drafts;
}

TEST(SpeculationTest, DraftsWhatFollowedAndGoesOnWithinALoop) {
  Speculation speculation(64, 100);
  std::vector<int32_t> text = {9, 1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_EQ(speculation.Propose(text, 0.25), 2);  // 0.5 and 0.25 are the chances at first
  EXPECT_EQ(Drafts(speculation, 2), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(speculation.text().size(), 11u);
  speculation.Learn(2, 2);
  text.insert(text.end(), {4, 5, 1});
  EXPECT_EQ(speculation.Propose(text, 0.25), 4);
  EXPECT_EQ(Drafts(speculation, 4), (std::vector<int32_t>{2, 3, 4, 5}));
  for (int i = 0; i < 30; ++i) speculation.Learn(8, 8);
  EXPECT_EQ(speculation.Propose(text, 0.25), 64);
  EXPECT_EQ(Drafts(speculation, 6), (std::vector<int32_t>{2, 3, 4, 5, 1, 2}));  // beyond the end of the text
  text.resize(98, 7);
  EXPECT_EQ(speculation.Propose(text, 0.25), 1) << "and one token is sampled behind it";
  text.resize(99, 7);
  EXPECT_EQ(speculation.Propose(text, 0.25), 0);
}

TEST(SpeculationTest, ATextThatRepeatsNothingDraftsNothing) {
  Speculation speculation(8, 1000);
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 1000; ++i) {
    text.push_back(i);
    ASSERT_EQ(speculation.Propose(text, 0.25), 0);
  }
}

// A text that repeats itself in its last tokens, and yet goes on otherwise.
TEST(SpeculationTest, WhereAllAreRefusedItRestsEverLonger) {
  Speculation speculation(8, 100000);
  std::vector<int32_t> text;
  std::vector<int32_t> tried_at;
  int32_t tried = 0;
  for (int32_t i = 0; i < 6000; ++i) {
    for (const int32_t id : {1, 2, 3}) text.push_back(id);
    const int32_t drafts = speculation.Propose(text, 0.25);
    if (drafts > 0) {
      tried_at.push_back(static_cast<int32_t>(text.size()));
      tried += drafts;
      speculation.Learn(drafts, 0);
    }
  }
  EXPECT_LE(tried, 4 + 18000 / 512 + 10);
  EXPECT_GE(tried_at.size(), 20u);
  EXPECT_LE(tried_at[2] - tried_at[1], 140);
  EXPECT_GE(tried_at.back() - tried_at.rbegin()[1], 512);
  // Right again: it drafts at once.
  speculation.Learn(1, 1);
  speculation.Learn(1, 1);
  EXPECT_GT(speculation.Propose(text, 0.25), 0);
}

TEST(SpeculationTest, DraftsOnlyWhatIsWorthItsRow) {
  Speculation speculation(8, 100);
  const std::vector<int32_t> text = {1, 2, 3, 4, 5, 1, 2, 3};
  EXPECT_EQ(speculation.Propose(text, 0.6), 0);
  EXPECT_EQ(speculation.Propose(text, 0.5), 1);
  for (int i = 0; i < 5; ++i) speculation.Learn(1, 1);
  EXPECT_EQ(speculation.Propose(text, 0.9), 1);
  EXPECT_EQ(speculation.Propose(text, 1.0), 0);
}

// --- in the scheduler

SamplingParams OneId(int32_t max_tokens) {
  SamplingParams params = Tokens(max_tokens);
  params.top_k = 1;
  return params;
}

TEST(DraftsTest, ALoopTakesFewStepsAndTheEventsSayWhatWasAccepted) {
  SchedulerHarness harness({.max_drafts = 8});
  const uint64_t handle = harness.Add(Ids(5), OneId(100));
  harness.RunAll(60);
  harness.ExpectCorrect(handle);
  const SequenceOutput& last = harness.seen(handle).last_event;
  EXPECT_GT(last.accepted_tokens, 60);
  EXPECT_EQ(last.accepted_tokens, last.drafted_tokens);
  const SchedulerStats& stats = harness.scheduler.stats();
  EXPECT_EQ(stats.accepted_tokens, last.accepted_tokens);
  EXPECT_EQ(stats.drafted_tokens, last.drafted_tokens);
  EXPECT_EQ(stats.generation_tokens, 100);
  EXPECT_EQ(stats.steps + last.accepted_tokens, 100);
  EXPECT_EQ(stats.surplus_tokens, 0);
}

TEST(DraftsTest, ARequestMayWantFewerOrNone) {
  for (const int32_t wanted : {0, 1, 3, 100}) {
    SCOPED_TRACE(wanted);
    SchedulerHarness harness({.max_drafts = 4});
    SamplingParams params = OneId(60);
    params.num_speculative_tokens = wanted;
    const uint64_t handle = harness.Add(Ids(5), params);
    size_t most = 0;
    while (harness.scheduler.HasWork()) {
      harness.Step();
      most = std::max(most, harness.plan.samples.size());
    }
    harness.ExpectCorrect(handle);
    EXPECT_EQ(most, 1u + std::min(wanted, 4));
  }
}

TEST(DraftsTest, MirostatAndBeamsDraftNothing) {
  SchedulerHarness harness({.max_drafts = 4});
  SamplingParams mirostat = OneId(40);
  SamplingRules rules;
  rules.mirostat_tau = 3;
  rules.repetition_penalty = 1.5f;
  mirostat.rules = std::make_shared<SamplingRules>(rules);
  mirostat.needs_output = true;
  harness.Add(Ids(5), mirostat);
  SamplingParams beams = Tokens(20);
  beams.beam_width = 2;
  harness.Add(Ids(6), beams);
  harness.RunAll(200);
  for (const auto& [handle, seen] : harness.all_seen()) harness.ExpectCorrect(handle);
  EXPECT_EQ(harness.scheduler.stats().drafted_tokens, 0);
}

// An end among the drafts: what lies behind it is not given.
TEST(DraftsTest, AStopIdAmongTheDraftsEndsTheSequence) {
  SchedulerHarness harness({.max_drafts = 8});
  SamplingParams params = OneId(100);
  params.min_tokens = 37;
  params.stop_token_ids = {0};  // the one that comes once it may
  const uint64_t handle = harness.Add({1, 1, 1, 1, 1}, params);
  harness.RunAll(100);
  harness.ExpectCorrect(handle);
  EXPECT_EQ(harness.seen(handle).last_event.finish_reason, FinishReason::kStop);
}

// Drafts stop nobody: where blocks are short there are none.
TEST(DraftsTest, WhereBlocksAreShortNobodyIsPreemptedForDrafts) {
  for (const int32_t max_drafts : {0, 8}) {
    SchedulerHarness harness({.num_blocks = 1 + 4 * 5, .block_size = 8, .max_drafts = max_drafts});
    for (int32_t i = 0; i < 4; ++i) harness.Add(Ids(5, i + 1), OneId(35));  // five blocks each
    harness.RunAll(200);
    for (const auto& [handle, seen] : harness.all_seen()) harness.ExpectCorrect(handle);
    EXPECT_EQ(harness.scheduler.stats().preemptions, 0) << max_drafts;
  }
}

// Plans that overlap: one that has nothing to draft never waits.
TEST(DraftsTest, WithoutDraftsPlansOverlapAsEver) {
  SchedulerHarness harness({.max_plans_in_flight = 2, .max_drafts = 8});
  const uint64_t handle = harness.Add(Ids(5), Tokens(60));  // 50 ids: three in a row do not come again
  harness.RunAll(100);
  harness.ExpectCorrect(handle);
  EXPECT_LE(harness.scheduler.stats().steps, 64);
  SchedulerHarness looping({.max_plans_in_flight = 2, .max_drafts = 8});
  const uint64_t loop = looping.Add(Ids(5), OneId(100));
  while (looping.scheduler.HasWork()) looping.Step();
  looping.Drain();
  looping.ExpectCorrect(loop);
  EXPECT_GT(looping.seen(loop).last_event.accepted_tokens, 60);
}

}  // namespace
}  // namespace quire
