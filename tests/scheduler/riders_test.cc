// Sequences that sample from the last row of a prompt that another computes: n > 1, and equal prompts.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

std::vector<uint64_t> AddEqual(SchedulerHarness* h, int count, int32_t prompt_len, const SamplingParams& params) {
  std::vector<uint64_t> handles;
  for (int i = 0; i < count; ++i) {
    SamplingParams own = params;
    own.seed = 100 + i;
    own.temperature = i % 2 == 0 ? 1.0f : 0.0f;
    handles.push_back(h->Add(Ids(prompt_len), own));
  }
  return handles;
}

int64_t DecodeRows(const SchedulerHarness& h) {
  int64_t rows = 0;
  for (const auto& [handle, seen] : h.all_seen()) {
    for (const auto& ids : seen.ids) rows += ids.empty() ? 0 : static_cast<int64_t>(ids.size()) - 1;
  }
  return rows;
}

TEST(RidersTest, EqualPromptsAndTheirSequencesSampleFromOneRow) {
  for (const int32_t prompt_len : {1, 7, 8, 9, 31, 64, 100}) {
    for (const int32_t max_tokens : {1, 9}) {
      for (const int32_t n : {1, 3}) {
        SCOPED_TRACE(absl::StrCat(prompt_len, " ", max_tokens, " ", n));
        SchedulerHarness h({.integrity = true});
        const auto handles = AddEqual(&h, 6, prompt_len, Tokens(max_tokens, n));
        ASSERT_TRUE(h.Schedule());
        EXPECT_EQ(h.plan.num_tokens, prompt_len);
        EXPECT_EQ(h.plan.sequences.size(), 1u);
        EXPECT_EQ(h.plan.riders.size(), 6u * n - 1);
        EXPECT_EQ(h.scheduler.stats().requests_running, 6);
        h.Commit();
        for (const uint64_t handle : handles) EXPECT_EQ(h.seen(handle).ids[n - 1].size(), 1u);
        h.RunAll(50);
        for (const uint64_t handle : handles) h.ExpectCorrect(handle);
        h.ExpectIdle();
        EXPECT_EQ(h.runner.tokens_computed(), prompt_len + DecodeRows(h));
        EXPECT_EQ(h.seen(handles[0]).last_event.cached_tokens, 0);
        EXPECT_EQ(h.seen(handles[5]).last_event.cached_tokens, prompt_len - 1);
        EXPECT_EQ(h.scheduler.stats().prompt_tokens, 6 * prompt_len);
        EXPECT_EQ(h.scheduler.stats().prefix_hit_tokens, 5 * (prompt_len - 1));
      }
    }
  }
}

TEST(RidersTest, ARequestThatComesWithTheLastChunkRides) {
  SchedulerHarness h({.max_num_batched_tokens = 16});
  const uint64_t first = h.Add(Ids(33), Tokens(4));
  h.Step();
  h.Step();
  const uint64_t late = h.Add(Ids(33), Tokens(4));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.num_tokens, 1);
  EXPECT_EQ(h.plan.riders.size(), 1u);
  h.Commit();
  EXPECT_EQ(h.seen(late).ids[0].size(), 1u);
  h.RunAll(20);
  h.ExpectCorrect(first);
  h.ExpectCorrect(late);
}

TEST(RidersTest, NobodyRidesOnWhatItMayNotShare) {
  SchedulerHarness h({.num_blocks = 600});
  SamplingParams scored = Tokens(3);
  scored.prompt_logprobs = 0;
  const auto add = [&](const SamplingParams& params, bool reads, bool writes) {
    EngineRequest request = MakeEngineRequest(Ids(40), params, h.options.block_size, h.context);
    request.reads_cache = reads;
    request.writes_cache = writes;
    return h.Add(std::move(request));
  };
  add(Tokens(3), true, false);  // keeps what it computes to itself
  add(Tokens(3), false, true);
  add(scored, true, true);
  h.context.salt = "other";
  add(Tokens(3), true, true);
  h.context.salt = "";
  h.Add(Ids(41), Tokens(3));  // follows the second
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.riders.size(), 0u);
  EXPECT_EQ(h.plan.num_tokens, 4 * 40);
  h.Commit();
  h.RunAll(10);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

TEST(RidersTest, NobodyRidesOnWhatBeganBeforeAReset) {
  SchedulerHarness h({.max_num_batched_tokens = 32});
  h.Add(Ids(40), Tokens(3));
  h.Step();
  h.blocks.DropAll();
  const uint64_t late = h.Add(Ids(40), Tokens(3));
  h.RunAll(20);
  h.ExpectCorrect(late);
  EXPECT_EQ(h.runner.tokens_computed(), 2 * (40 + 2));
}

TEST(RidersTest, OthersRideOnOneThatScoresItsPrompt) {
  SchedulerHarness h({});
  SamplingParams scored = Tokens(3, 2);
  scored.prompt_logprobs = 0;
  const uint64_t first = h.Add(Ids(40), scored), second = h.Add(Ids(40), Tokens(3));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.riders.size(), 2u);
  h.Commit();
  h.RunAll(20);
  h.ExpectCorrect(first);
  h.ExpectCorrect(second);
}

TEST(RidersTest, PlacesAndBlocksBoundThem) {
  {
    SchedulerHarness h({.max_num_seqs = 4});
    const auto handles = AddEqual(&h, 9, 20, Tokens(5, 2));
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.riders.size(), 3u);
    h.Commit();
    h.RunAll(100);
    for (const uint64_t handle : handles) h.ExpectCorrect(handle);
    h.ExpectIdle();
  }
  SchedulerHarness h({.num_blocks = 1 + 8});
  const auto handles = AddEqual(&h, 9, 36, Tokens(12));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(h.plan.riders.size(), 3u) << "of 8 blocks the prompt takes 5, each rider's first token one";
  h.Commit();
  h.RunAll(200);
  for (const uint64_t handle : handles) h.ExpectCorrect(handle);
  h.ExpectIdle();
}

// One that needs more blocks than are left, behind short requests, and ever more equal prompts behind it.
TEST(RidersTest, NobodyIsOvertakenForEver) {
  SchedulerHarness h({.num_blocks = 1 + 40, .max_num_batched_tokens = 64, .max_model_len = 320});
  h.Add(Ids(16, 2), Tokens(60));
  h.Step();
  const uint64_t large = h.Add(Ids(300), Tokens(4));
  for (int step = 0; h.seen(large).ids[0].empty(); ++step) {
    ASSERT_LT(step, 150);
    for (int i = 0; i < 2; ++i) h.Add(Ids(24, 3 + step), Tokens(3));
    h.Step();
  }
  h.RunAll(2000);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

TEST(RidersTest, AnAbortOfTheProducerInItsLastStepTakesNothingFromThem) {
  for (const bool whole : {true, false}) {
    SchedulerHarness h({.integrity = true});
    const auto handles = AddEqual(&h, 5, 50, Tokens(4, 2));
    ASSERT_TRUE(h.Schedule());
    whole ? h.Abort(handles[0]) : h.AbortSequence(handles[0], 0);
    h.AbortSequence(handles[3], 1);
    h.Abort(handles[4]);
    h.Commit();
    h.RunAll(20);
    for (int i = 1; i < 3; ++i) h.ExpectCorrect(handles[i]);
    for (const uint64_t handle : handles) h.ExpectCorrectSoFar(handle);
    EXPECT_EQ(h.seen(handles[0]).ids[1].size(), whole ? 0u : 4u);
    EXPECT_EQ(h.seen(handles[3]).ids[0].size(), 4u);
    EXPECT_EQ(h.runner.tokens_computed(), 50 + DecodeRows(h));
    h.ExpectIdle();
  }
}

TEST(RidersTest, BadLogitsFailTheirRequestAlone) {
  for (const int bad : {0, 2}) {
    SchedulerHarness h({.integrity = true});
    const auto handles = AddEqual(&h, 4, 50, Tokens(4, 2));
    h.runner.bad_seeds = {100u + bad};
    h.RunAll(20);
    for (int i = 0; i < 4; ++i) {
      if (i != bad) h.ExpectCorrect(handles[i]);
    }
    EXPECT_EQ(h.seen(handles[bad]).last_event.error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(h.seen(handles[bad]).final_events[1].finish_reason, FinishReason::kError);
    h.ExpectIdle();
  }
}

TEST(RidersTest, AFailedStepEndsTheProducerAndTheOthersComputeThePromptThemselves) {
  SchedulerHarness h({.integrity = true});
  const auto handles = AddEqual(&h, 4, 50, Tokens(4, 2));
  ASSERT_TRUE(h.Schedule());
  h.FailStep(absl::InternalError("broken"));
  h.RunAll(20);
  EXPECT_EQ(h.seen(handles[0]).last_event.finish_reason, FinishReason::kError);
  for (int i = 1; i < 4; ++i) h.ExpectCorrect(handles[i]);
  EXPECT_EQ(h.runner.tokens_computed(), 50 + DecodeRows(h));
  h.ExpectIdle();
}

TEST(RidersTest, BeamSearchesRideAndAreRiddenOn) {
  SamplingParams beams = Tokens(9, 2);
  beams.beam_width = 3;
  beams.temperature = 0;
  for (const auto& [first, second] : {std::pair{beams, Tokens(9, 2)}, {Tokens(9, 2), beams}, {beams, beams}}) {
    SchedulerHarness h({.integrity = true});
    h.Add(Ids(30), first);
    h.Add(Ids(30), second);
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.num_tokens, 30);
    EXPECT_EQ(h.plan.riders.size(), first.beam_width == second.beam_width ? 1u : 2u);
    h.Commit();
    h.RunAll(50);
    h.ExpectCorrect(1);
    h.ExpectCorrect(2);
    h.ExpectIdle();
  }
}

// Tenants that may share the cache.
TEST(RidersTest, AnotherTenantsRequestFollowsInsteadOfRiding) {
  SimLoopOptions options;
  options.scheduler.policy = PolicyKind::kFair;
  SimLoop loop(options);
  for (int i = 0; i < 8; ++i) loop.Add({.prompt_len = 1000, .max_tokens = 1, .prompt_seed = 7, .tenant = "a"});
  const uint64_t other = loop.Add({.prompt_len = 1000, .max_tokens = 1, .prompt_seed = 7, .tenant = "b"});
  loop.Step();
  EXPECT_EQ(loop.plan.num_tokens, 1000);
  EXPECT_EQ(loop.plan.riders.size(), 7u);
  loop.Step();
  EXPECT_EQ(loop.plan.num_tokens, 1);
  EXPECT_TRUE(loop.seen(other).complete());
}

TEST(RidersTest, RidingIsAHitAndRetainsWhatTheRiderWants) {
  SchedulerHarness h({});
  h.Add(Ids(32), Tokens(4));
  EngineRequest request = MakeEngineRequest(Ids(32), Tokens(4), h.options.block_size, h.context);
  ASSERT_TRUE(request.retention.AddSpan(0, 32, 90).ok());
  h.Add(std::move(request));
  h.RunAll(10);
  for (const PrefixInfo& prefix : h.blocks.ListPrefixes()) EXPECT_EQ(prefix.head_hits, 1);
  EXPECT_EQ(h.blocks.stats().pinned, 4);
}

}  // namespace
}  // namespace quire
