// Faults that others have reported about prefix caches and KV blocks, as far as they need a scheduler: see
// tests/block_manager/cache_faults_test.cc.

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

TEST(CacheFaultsTest, B002_AStepThatNeverCommittedLeavesNothingToFind) {
  for (const bool failed : {false, true}) {
    SchedulerHarness h({.block_size = 4, .integrity = true});
    h.Add(Ids(14), Tokens(3));
    h.RunAll(10);
    std::vector<int32_t> longer = Ids(14);
    longer.resize(30, 3);
    const uint64_t dropped = h.Add(longer, Tokens(4));  // a hit inside a block: its copy is in the plan
    ASSERT_TRUE(h.Schedule());
    ASSERT_EQ(h.plan.copies.size(), 1u);
    h.Abort(dropped);
    if (failed) {
      h.FailStep(absl::InternalError("broken"));
    } else {
      h.Commit();
    }
    const uint64_t again = h.Add(longer, Tokens(4));
    h.RunAll(20);
    EXPECT_EQ(h.seen(again).last_event.cached_tokens, 14);
    h.ExpectCorrect(again);
    h.ExpectIdle();
  }
}

TEST(CacheFaultsTest, B015_UtilisationStaysBetweenNoneAndAll) {
  SchedulerHarness h({.num_blocks = 60, .block_size = 4});
  for (int32_t i = 0; i < 500; ++i) {
    h.Add(Ids(1 + i % 40, i % 7), Tokens(1 + i % 9));
    h.Step();
    const BlockStats stats = h.blocks.stats();
    ASSERT_GE(stats.active, 0);
    ASSERT_LE(stats.active, stats.total);
  }
  h.RunAll(5000);
  EXPECT_EQ(h.scheduler.stats().requests_finished, 500);
  h.ExpectIdle();
}

TEST(CacheFaultsTest, B018_ARequestThatEndsWhileItsStepRunsReleasesOnce) {
  SchedulerHarness h({.num_blocks = 40, .block_size = 8, .max_model_len = 256});
  const uint64_t whole = h.Add(Ids(5), Tokens(200));
  h.RunAll(250);
  h.ExpectCorrect(whole);
  h.ExpectIdle();
  const uint64_t cut = h.Add(Ids(5, 3), Tokens(200));
  for (int i = 0; i < 50; ++i) h.Step();
  ASSERT_TRUE(h.Schedule());
  h.Abort(cut);
  h.Commit();  // checks that no block is listed twice
  h.ExpectIdle();
}

TEST(CacheFaultsTest, B020_SixtyFourRequestsWithASharedPrefixInATinyPool) {
  for (const int32_t num_blocks : {14, 20}) {
    SchedulerHarness h({.num_blocks = num_blocks, .block_size = 4, .max_num_batched_tokens = 32, .integrity = true});
    for (int32_t i = 0; i < 64; ++i) {
      std::vector<int32_t> prompt = Ids(17);
      prompt.resize(17 + i % 5, i % 50);
      h.Add(prompt, Tokens(3 + i % 20));
    }
    h.RunAll(20000);
    EXPECT_GT(h.scheduler.stats().preemptions, 0);
    EXPECT_GT(h.scheduler.stats().prefix_hit_tokens, 64);
    for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
    h.ExpectIdle();
  }
}

TEST(CacheFaultsTest, B021_B022_PromptScoresDoNotDependOnWhatIsCached) {
  constexpr int32_t kBlockSize = 8;
  SamplingParams scored = Tokens(3);
  scored.prompt_logprobs = 0;
  for (const bool reversed : {false, true}) {
    SchedulerHarness h({.block_size = kBlockSize});
    std::vector<int32_t> lengths = {kBlockSize - 1, kBlockSize, kBlockSize + 1, 2 * kBlockSize + 5};
    if (reversed) std::reverse(lengths.begin(), lengths.end());
    for (const int32_t length : lengths) {
      h.Add(Ids(length), Tokens(2));
      for (int i = 0; i < 2; ++i) {
        const uint64_t handle = h.Add(Ids(length), scored);
        h.RunAll(20);
        h.ExpectCorrect(handle);  // every score, and as many as the first time
      }
    }
  }
}

TEST(CacheFaultsTest, B025_RecomputingIsNoHit) {
  SchedulerHarness h({.num_blocks = 40, .block_size = 4, .max_num_seqs = 16});
  for (int32_t i = 0; i < 48; ++i) h.Add(Ids(40, i), Tokens(40));
  h.RunAll(5000);
  EXPECT_GT(h.scheduler.stats().preemptions, 10);
  // What different prompts of few ids have in common by chance; recomputed tokens are thousands.
  EXPECT_LT(h.scheduler.stats().prefix_hit_tokens, 48 * 8);
  int32_t reported = 0;
  for (const auto& [handle, seen] : h.all_seen()) reported += seen.last_event.cached_tokens;
  EXPECT_EQ(reported, h.scheduler.stats().prefix_hit_tokens);
}

}  // namespace
}  // namespace quire
