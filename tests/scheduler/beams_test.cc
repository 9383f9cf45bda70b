// Beam search in the scheduler: sequences that follow the beams, whatever happens to them on the way.

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/naive_beam_search.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

SamplingParams Beams(int32_t width, int32_t n, int32_t max_tokens) {
  SamplingParams params;
  params.beam_width = width;
  params.n = n;
  params.max_tokens = max_tokens;
  params.temperature = 0;
  params.logprobs = 0;
  return params;
}

TEST(BeamsTest, GivesTheBestHypothesesAtTheEndWithTheirScores) {
  SchedulerHarness h({});
  SamplingParams params = Beams(4, 3, 12);
  params.length_penalty = 0.5;
  const uint64_t handle = h.Add(Ids(20), params);
  while (h.Step() && h.scheduler.HasWork()) EXPECT_TRUE(h.seen(handle).ids[0].empty()) << "before the end";
  h.ExpectCorrect(handle);
  const std::vector<NaiveHypothesis> expected =
      NaiveBeamSearch(h.seen(handle).request.prompt_ids, params, 12, h.options.eos_ids, &FakeRunner::Continuations);
  ASSERT_EQ(expected.size(), 3u);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(h.seen(handle).final_events[i].score, expected[i].score);
  EXPECT_GE(expected[0].score, expected[2].score);
  EXPECT_EQ(h.scheduler.stats().requests_finished, 1);
  h.ExpectIdle();
}

// 12 blocks of prompt are there once; behind it beams part late, for they come from few parents.
TEST(BeamsTest, BlocksAreSharedUpToEachDivergence) {
  SchedulerHarness h({.prefix_caching = false});
  constexpr int32_t kWidth = 8, kPrompt = 96, kOutput = 24;
  SamplingParams params = Beams(kWidth, kWidth, kOutput);
  params.ignore_eos = true;
  const uint64_t handle = h.Add(Ids(kPrompt), params);
  int32_t most = 0;
  while (h.scheduler.HasWork()) {
    h.Step();
    most = std::max(most, h.blocks.stats().active);
  }
  h.ExpectCorrect(handle);
  const int32_t prompt_blocks = kPrompt / 8, output_blocks = kOutput / 8;
  EXPECT_GE(most, prompt_blocks + kWidth);
  EXPECT_LE(most, prompt_blocks + kWidth * output_blocks);
  EXPECT_LT(most, kWidth * (prompt_blocks + output_blocks) / 3);
  // Each position of each beam was computed once, and the prompt once.
  EXPECT_LE(h.runner.tokens_computed(), kPrompt + kWidth * kOutput);
}

TEST(BeamsTest, CopiesOnlyPartFilledLastBlocks) {
  SchedulerHarness h({});
  const uint64_t handle = h.Add(Ids(21), Beams(4, 4, 30));
  size_t copies = 0;
  while (h.scheduler.HasWork()) {
    h.Step();
    EXPECT_LE(h.plan.copies.size(), 4u);
    copies += h.plan.copies.size();
  }
  h.ExpectCorrect(handle);
  EXPECT_GT(copies, 0u);
}

TEST(BeamsTest, APoolForOneBeamIsEnough) {
  for (const bool caching : {false, true}) {
    SCOPED_TRACE(caching);
    // 40 tokens: 5 blocks for one sequence, and there are 6.
    SchedulerHarness h({.num_blocks = 7, .prefix_caching = caching});
    const uint64_t handle = h.Add(Ids(20), Beams(5, 2, 20));
    h.RunAll(4000);
    h.ExpectCorrect(handle);
    EXPECT_GT(h.scheduler.stats().preemptions, 10);
    h.ExpectIdle();
  }
}

TEST(BeamsTest, OnePlaceInTheBatchIsEnough) {
  SchedulerHarness h({.max_num_seqs = 1});
  const uint64_t beams = h.Add(Ids(20), Beams(4, 4, 10));
  const uint64_t other = h.Add(Ids(12, 2), Tokens(10));
  h.RunAll(4000);
  h.ExpectCorrect(beams);
  h.ExpectCorrect(other);
}

TEST(BeamsTest, TwoSearchesInATightPoolBothEnd) {
  SchedulerHarness h({.num_blocks = 14, .prefix_caching = false, .max_num_seqs = 3});
  std::vector<uint64_t> handles;
  for (int32_t i = 0; i < 3; ++i) handles.push_back(h.Add(Ids(20, i), Beams(4, 2, 16)));
  h.RunAll(8000);
  for (const uint64_t handle : handles) h.ExpectCorrect(handle);
}

TEST(BeamsTest, EosAndStopIdsEndHypothesesAndMinTokensBansThem) {
  SchedulerHarness h({});
  SamplingParams params = Beams(6, 6, 20);
  params.stop_token_ids = {3, 9};
  const uint64_t free = h.Add(Ids(10), params);
  params.min_tokens = 8;
  const uint64_t late = h.Add(Ids(10), params);
  h.RunAll(200);
  h.ExpectCorrect(free);
  h.ExpectCorrect(late);
  size_t shortest = 100;
  for (const auto& ids : h.seen(late).ids) shortest = std::min(shortest, ids.size());
  EXPECT_GE(shortest, 9u);
  bool eos = false, stop_id = false;
  for (const SequenceOutput& last : h.seen(free).final_events) {
    if (last.finish_reason != FinishReason::kStop) continue;
    eos |= last.stopped_by_eos;
    stop_id |= !last.stopped_by_eos;
  }
  EXPECT_TRUE(eos || stop_id);
}

TEST(BeamsTest, ReportsTheLogprobsThatTheClientAskedFor) {
  SchedulerHarness h({});
  SamplingParams params = Beams(3, 1, 6);
  params.logprobs = 2;
  EngineRequest request = MakeEngineRequest(Ids(9), params, h.options.block_size, h.context);
  request.handle = 1000;
  ASSERT_TRUE(h.scheduler.Add(request).ok());
  StepOutputs outputs;
  while (h.scheduler.HasWork()) {
    h.scheduler.Schedule(h.now, &h.plan, &outputs);
    h.runner.Run(h.plan, &h.result);
    h.scheduler.Commit(h.plan, h.result, h.now, &outputs);
  }
  std::vector<int32_t> tokens = request.prompt_ids;
  for (const SequenceOutput& event : outputs.sequences) {
    const std::vector<TokenLogprob> all = FakeRunner::Continuations(tokens);
    ASSERT_EQ(event.logprobs_count, 3);
    const TokenLogprob* entries = &outputs.logprobs[event.logprobs_begin];
    EXPECT_EQ(entries[0].token_id, event.token_id);
    EXPECT_EQ(all[event.rank - 1].token_id, event.token_id);
    EXPECT_EQ(all[event.rank - 1].logprob, entries[0].logprob);
    for (int32_t i = 0; i < 2; ++i) EXPECT_EQ(entries[1 + i].token_id, all[i].token_id);
    tokens.push_back(event.token_id);
  }
  EXPECT_GT(tokens.size(), request.prompt_ids.size());
}

TEST(BeamsTest, AbortEndsEachAskedForSequenceOnce) {
  for (int32_t steps = 0; steps < 6; ++steps) {
    SCOPED_TRACE(steps);
    SchedulerHarness h({});
    const uint64_t handle = h.Add(Ids(20), Beams(5, 2, 30));
    for (int32_t i = 0; i < steps; ++i) h.Step();
    const bool planned = h.Schedule();
    h.AbortSequence(handle, 0);  // means nothing here
    EXPECT_FALSE(h.seen(handle).finished);
    h.Abort(handle);
    EXPECT_TRUE(h.seen(handle).finished);
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(h.seen(handle).final_events[i].finish_reason, FinishReason::kAborted);
      EXPECT_TRUE(h.seen(handle).ids[i].empty());
    }
    if (planned) h.Commit();
    h.ExpectIdle();
  }
}

TEST(BeamsTest, HeldBeamsGiveUpTheirBlocksAndGoOn) {
  SchedulerHarness h({});
  const uint64_t handle = h.Add(Ids(20), Beams(4, 4, 16));
  for (int32_t i = 0; i < 5; ++i) h.Step();
  h.scheduler.SetHeld(handle, true);
  EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(h.blocks.stats().active, 0);
  EXPECT_FALSE(h.scheduler.HasWork());
  h.scheduler.SetHeld(handle, false);
  h.RunAll(200);
  h.ExpectCorrect(handle);
}

TEST(BeamsTest, AWidthBelowNOrAboveTheLimitIsRefused) {
  SchedulerHarness h({});
  for (const auto& [width, n] : {std::pair(2, 3), std::pair(65, 1)}) {
    EngineRequest request = MakeEngineRequest(Ids(4), Beams(width, n, 4), h.options.block_size, h.context);
    EXPECT_EQ(h.scheduler.CheckRequest(request).code(), absl::StatusCode::kInvalidArgument);
  }
}

// So many beams that the vocabulary of 50 ids does not fill them at first.
TEST(BeamsTest, AWidthBeyondTheVocabularyHasFewerBeamsAtFirst) {
  SchedulerHarness h({});
  const uint64_t handle = h.Add(Ids(5), Beams(60, 60, 3));
  h.RunAll(100);
  h.ExpectCorrect(handle);
}

// One token, of which the vocabulary has 50.
TEST(BeamsTest, MoreHypothesesThanThereAreIsAnError) {
  SchedulerHarness h({});
  const uint64_t handle = h.Add(Ids(5), Beams(60, 60, 1));
  h.RunAll(100);
  for (const SequenceOutput& last : h.seen(handle).final_events) {
    EXPECT_EQ(last.error.code(), absl::StatusCode::kFailedPrecondition);
  }
  h.ExpectIdle();
}

}  // namespace
}  // namespace quire
