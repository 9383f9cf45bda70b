// Requests that go on from running ones: what they give is what a request with the same tokens gives, and while the
// other one runs its blocks are shared, not computed again.

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

// What is known of a sequence, as a front end sees it.
std::vector<int32_t> Known(const SchedulerHarness& h, uint64_t handle, int32_t sequence = 0) {
  const SeenRequest& seen = h.seen(handle);
  std::vector<int32_t> tokens = seen.request.prompt_ids;
  tokens.insert(tokens.end(), seen.ids[sequence].begin(), seen.ids[sequence].end());
  return tokens;
}

// A request behind the first `at` known tokens of another one.
uint64_t AddFork(SchedulerHarness& h, uint64_t parent, int32_t sequence, int32_t at, const std::vector<int32_t>& more,
                 SamplingParams params) {
  std::vector<int32_t> tokens = Known(h, parent, sequence);
  tokens.resize(at);
  tokens.insert(tokens.end(), more.begin(), more.end());
  h.fork_of = {.handle = parent, .sequence_index = sequence};
  const uint64_t handle = h.Add(std::move(tokens), std::move(params));
  h.fork_of = {};
  return handle;
}

SamplingParams Greedy(int32_t max_tokens) {
  SamplingParams params = Tokens(max_tokens);
  params.temperature = 0;
  return params;
}

// A parent of 21 tokens that has given 10 more, with and without the prefix cache.
class ForkTest : public testing::TestWithParam<bool> {
 protected:
  ForkTest() : h({.prefix_caching = GetParam()}) {
    parent = h.Add(Ids(21), Greedy(60));
    while (h.seen(parent).ids[0].size() < 10) h.Step();
  }

  // Runs to the end; the tokens that the fork did not compute.
  int32_t CachedTokens(uint64_t fork) {
    h.RunAll(1000);
    h.ExpectCorrect(fork);
    h.ExpectIdle();
    return h.seen(fork).last_event.cached_tokens;
  }

  SchedulerHarness h;
  uint64_t parent = 0;
};

TEST_P(ForkTest, TakesAllThatARunningSequenceHasComputed) {
  const int32_t active = h.blocks.stats().active;
  const uint64_t fork = AddFork(h, parent, 0, 31, {4, 5}, Tokens(20));
  const int64_t computed = h.runner.tokens_computed();
  h.Step();
  // 31 are known, the last of them is not computed; the copy of the part-filled block and one more are new.
  EXPECT_EQ(h.runner.tokens_computed() - computed, 1 + 3);
  EXPECT_EQ(h.plan.copies.size(), 1u);
  EXPECT_LE(h.blocks.stats().active, active + 2);
  EXPECT_EQ(CachedTokens(fork), 30);
  h.ExpectCorrect(parent);
}

TEST_P(ForkTest, TakesNoMoreThanItIsToldTo) {
  for (const int32_t at : {1, 7, 8, 16, 17, 24, 25}) {
    SCOPED_TRACE(at);
    const uint64_t fork = AddFork(h, parent, 0, at, {9, 8, 7}, Tokens(4));
    h.Step();
    while (!h.seen(fork).finished) h.Step();
    h.ExpectCorrect(fork);
    EXPECT_GE(h.seen(fork).last_event.cached_tokens, at);
    EXPECT_LE(h.seen(fork).last_event.cached_tokens, at + 2);
  }
  h.RunAll(1000);
  h.ExpectCorrect(parent);
}

TEST_P(ForkTest, WithoutNewTokensTheLastOneIsComputedAgain) {
  const uint64_t fork = AddFork(h, parent, 0, 24, {}, Greedy(30));
  EXPECT_EQ(CachedTokens(fork), 23);
  std::vector<int32_t> expected(h.seen(parent).ids[0].begin() + 3, h.seen(parent).ids[0].begin() + 33);
  EXPECT_EQ(h.seen(fork).ids[0], expected);  // both are greedy
}

TEST_P(ForkTest, ASequenceOfSeveral) {
  SamplingParams params = Tokens(40, 3);
  params.temperature = 1;
  const uint64_t several = h.Add(Ids(13, 2), params);
  while (h.seen(several).ids[2].size() < 12) h.Step();
  const uint64_t fork = AddFork(h, several, 2, 20, {1}, params);
  EXPECT_EQ(CachedTokens(fork), 20);
  h.ExpectCorrect(several);
}

TEST_P(ForkTest, OfAForkOfAFork) {
  uint64_t fork = parent;
  for (int32_t i = 0; i < 4; ++i) {
    fork = AddFork(h, fork, 0, static_cast<int32_t>(Known(h, fork).size()), {i}, Tokens(40 - 5 * i));
    while (h.seen(fork).ids[0].size() < 5) h.Step();
    h.ExpectCorrectSoFar(fork);
    EXPECT_GE(h.seen(fork).last_event.cached_tokens, 30 + 6 * i);
  }
  h.RunAll(1000);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

// Its blocks are found if the cache has them; if not the tokens are computed again.
TEST_P(ForkTest, OfAFinishedAnAbortedAHeldRequest) {
  const int32_t cached = GetParam() ? 30 : 0;
  const uint64_t held = AddFork(h, parent, 0, 31, {4}, Tokens(5));
  h.scheduler.SetHeld(parent, true);
  while (!h.seen(held).finished) h.Step();
  h.ExpectCorrect(held);
  EXPECT_EQ(h.seen(held).last_event.cached_tokens, cached);
  h.scheduler.SetHeld(parent, false);
  h.Step();

  const uint64_t aborted = AddFork(h, parent, 0, 31, {5}, Tokens(5));
  ASSERT_TRUE(h.Schedule());
  h.Abort(parent);
  h.Commit();
  EXPECT_GE(CachedTokens(aborted), cached);  // it may have started before
  const uint64_t finished = AddFork(h, parent, 0, 31, {6}, Tokens(5));
  const int32_t found = CachedTokens(finished);
  EXPECT_GE(found, cached);
  EXPECT_LE(found, GetParam() ? 31 : 0);
}

TEST_P(ForkTest, OtherTokensOrAnotherRootShareNothing) {
  h.fork_of = {.handle = parent};
  const uint64_t other = h.Add(Ids(25, 9), Tokens(3));
  h.context.salt = "other";
  const uint64_t salted = h.Add(Known(h, parent), Tokens(3));
  h.fork_of = {.handle = 12345, .sequence_index = 0};
  h.context.salt = "";
  const uint64_t nobody = h.Add(Ids(25, 8), Tokens(3));
  h.fork_of = {.handle = parent, .sequence_index = 7};
  const uint64_t no_sequence = h.Add(Ids(25, 7), Tokens(3));
  h.RunAll(1000);
  for (const uint64_t handle : {other, salted, nobody, no_sequence}) {
    h.ExpectCorrect(handle);
    EXPECT_EQ(h.seen(handle).last_event.cached_tokens, 0);
  }
}

TEST_P(ForkTest, ADeadlineEndsTheForkAlone) {
  h.scheduler.SetHeld(parent, true);
  h.fork_of = {.handle = parent};
  const uint64_t fork = h.Add(Known(h, parent), Tokens(50), 0, h.now + absl::Seconds(5));
  h.fork_of = {};
  for (int32_t i = 0; i < 10; ++i) h.Step();
  EXPECT_EQ(h.seen(fork).last_event.error.code(), absl::StatusCode::kDeadlineExceeded);
  h.scheduler.SetHeld(parent, false);
  h.RunAll(1000);
  h.ExpectCorrect(parent);
}

INSTANTIATE_TEST_SUITE_P(Caching, ForkTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& caching) { return caching.param ? "On" : "Off"; });

// Forks of anything at any time, in any pool: each request gives its own tokens.
TEST(ForkPropertyTest, RandomForksGiveTheirOwnTokens) {
  int64_t forked_tokens = 0, preemptions = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    HarnessOptions options;
    options.block_size = std::vector<int32_t>{1, 8, 16}[random() % 3];
    options.num_blocks = (random() % 2 == 0 ? 160 : 1600) / options.block_size;
    options.prefix_caching = random() % 2 == 0;
    options.integrity = random() % 3 == 0;
    options.max_num_batched_tokens = random() % 3 == 0 ? 16 : 2048;
    options.max_plans_in_flight = static_cast<int32_t>(1 + random() % 2);
    SchedulerHarness h(options);
    std::vector<uint64_t> handles;
    while (handles.size() < 40) {
      SamplingParams params = Tokens(static_cast<int32_t>(1 + random() % 24), random() % 4 == 0 ? 3 : 1);
      params.ignore_eos = random() % 2 == 0;
      params.seed = random();
      params.temperature = random() % 2 == 0 ? 0 : 1;
      if (handles.empty() || random() % 4 == 0) {
        handles.push_back(
            h.Add(Ids(static_cast<int32_t>(1 + random() % 40), static_cast<int32_t>(random() % 3)), params));
      } else if (random() % 2 == 0) {
        const uint64_t parent = handles[random() % handles.size()];
        const auto sequence = static_cast<int32_t>(random() % h.seen(parent).ids.size());
        const std::vector<int32_t> known = Known(h, parent, sequence);
        const auto at = static_cast<int32_t>(1 + random() % known.size());
        if (at > 90) continue;
        handles.push_back(AddFork(h, parent, sequence, at, std::vector<int32_t>(random() % 4, 11), params));
      } else if (random() % 12 == 0) {
        h.Abort(handles[random() % handles.size()]);
      }
      for (uint32_t steps = random() % 4; steps > 0 && h.scheduler.HasWork(); --steps) h.Step();
      ASSERT_FALSE(HasFailure());
    }
    h.RunAll(10000);
    for (const uint64_t handle : handles) {
      const SeenRequest& seen = h.seen(handle);
      const bool aborted = std::any_of(seen.final_events.begin(), seen.final_events.end(), [](const SequenceOutput& e) {
        return e.finish_reason == FinishReason::kAborted;
      });
      aborted ? h.ExpectCorrectSoFar(handle) : h.ExpectCorrect(handle);
      if (!options.prefix_caching) forked_tokens += seen.last_event.cached_tokens;
    }
    preemptions += h.scheduler.stats().preemptions;
    h.ExpectIdle();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(forked_tokens, 500);
  EXPECT_GT(preemptions, 20);
}

}  // namespace
}  // namespace quire
