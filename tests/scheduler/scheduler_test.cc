#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

std::vector<uint64_t> Planned(const SchedulePlan& plan) {
  std::vector<uint64_t> handles;
  for (const ScheduledSequence& entry : plan.sequences) handles.push_back(entry.sequence->group->request.handle);
  return handles;
}

const ScheduledSequence* EntryOf(const SchedulePlan& plan, uint64_t handle) {
  for (const ScheduledSequence& entry : plan.sequences) {
    if (entry.sequence->group->request.handle == handle) return &entry;
  }
  return nullptr;
}

TEST(SchedulerTest, RefusesWhatCanNeverFitAndSaysWhy) {
  SchedulerHarness h({.num_blocks = 5, .block_size = 8});
  const auto check = [&](int32_t prompt_len, SamplingParams params) {
    return h.scheduler.CheckRequest(MakeEngineRequest(Ids(prompt_len), std::move(params), 8, h.context));
  };
  EXPECT_EQ(check(20, Tokens(13)), absl::OkStatus());  // the last token is never stored: 32 are
  EXPECT_EQ(check(20, Tokens(14)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(check(20, Tokens(14)).message().find("the pool has 4"), std::string_view::npos);
  EXPECT_EQ(check(0, Tokens(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(check(128, Tokens(1)).message().find("128"), std::string_view::npos);
  EXPECT_EQ(check(4, Tokens(0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(4, Tokens(1, 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(4, Tokens(1, 65)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(4, Tokens(std::numeric_limits<int32_t>::max())).code(), absl::StatusCode::kInvalidArgument);
  EngineRequest unhashed = MakeEngineRequest(Ids(8), Tokens(1), 8, h.context);
  unhashed.prompt_hashes.clear();
  EXPECT_EQ(h.scheduler.CheckRequest(unhashed).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SchedulerTest, RefusesALiveHandle) {
  SchedulerHarness h({});
  EngineRequest request = MakeEngineRequest(Ids(8), Tokens(1), 8, h.context);
  request.handle = 77;
  EXPECT_TRUE(h.scheduler.Add(request).ok());
  EXPECT_EQ(h.scheduler.Add(request).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(h.scheduler.CheckInvariants(), absl::OkStatus());
}

TEST(SchedulerTest, ALongPromptIsChunkedAndSharesTheBudgetWithLaterOnes) {
  SchedulerHarness h({.max_num_batched_tokens = 20});
  const uint64_t running = h.Add(Ids(4, 5), Tokens(40));
  h.Step();
  const uint64_t prompt = h.Add(Ids(100, 2), Tokens(2));
  ASSERT_TRUE(h.Schedule());
  EXPECT_EQ(EntryOf(h.plan, running)->num_tokens, 1);
  EXPECT_EQ(EntryOf(h.plan, prompt)->num_tokens, 19);  // nobody else wants them
  EXPECT_EQ(EntryOf(h.plan, prompt)->sample, -1);
  h.Commit();
  const uint64_t short_one = h.Add(Ids(6, 3), Tokens(1));
  h.Step();
  EXPECT_TRUE(h.seen(short_one).finished);
  EXPECT_TRUE(h.seen(prompt).ids[0].empty());
  h.RunAll(50);
  for (const uint64_t handle : {running, prompt, short_one}) h.ExpectCorrect(handle);
}

TEST(SchedulerTest, ABudgetBelowTheNumberOfSequencesRotates) {
  SchedulerHarness h({.max_num_batched_tokens = 2});
  std::vector<uint64_t> handles;
  for (int32_t i = 0; i < 5; ++i) handles.push_back(h.Add(Ids(1, i), Tokens(30, 2)));
  std::vector<int32_t> longest_wait(handles.size() * 2), last(handles.size() * 2, -1);
  int32_t step = 0;
  for (; h.scheduler.HasWork(); ++step) {
    ASSERT_LT(step, 1000);
    ASSERT_TRUE(h.Schedule());
    for (const ScheduledSequence& entry : h.plan.sequences) {
      const size_t i = (entry.sequence->group->request.handle - 1) * 2 + entry.sequence->index;
      if (last[i] >= 0) longest_wait[i] = std::max(longest_wait[i], step - last[i]);
      last[i] = step;
    }
    h.Commit();
  }
  for (const int32_t wait : longest_wait) EXPECT_LE(wait, 6);
  for (const uint64_t handle : handles) h.ExpectCorrect(handle);
}

TEST(SchedulerTest, LowerPriorityNumbersAndThenEarlierArrivalsGoFirst) {
  SchedulerHarness h({.max_num_seqs = 1});
  const uint64_t running = h.Add(Ids(4), Tokens(3), -1);
  h.Step();
  const uint64_t late = h.Add(Ids(4, 2), Tokens(1), 5);
  const uint64_t second = h.Add(Ids(4, 3), Tokens(1), -1);
  const uint64_t third = h.Add(Ids(4, 4), Tokens(1), -1);
  std::vector<uint64_t> order;
  while (h.scheduler.HasWork()) {
    ASSERT_TRUE(h.Schedule());
    ASSERT_EQ(h.plan.sequences.size(), 1u);
    if (order.empty() || order.back() != Planned(h.plan)[0]) order.push_back(Planned(h.plan)[0]);
    h.Commit();
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{running, second, third, late}));
}

TEST(SchedulerTest, AgeingLetsALowPriorityThroughAStreamOfUrgentWork) {
  SchedulerHarness h({.max_num_seqs = 1});
  const uint64_t low = h.Add(Ids(4), Tokens(1), 1);
  // An urgent request is always there, so without ageing `low` would wait for ever.
  int32_t step = 0;
  for (; !h.seen(low).finished; ++step) {
    ASSERT_LT(step, 2000);
    h.Add(Ids(4, 2), Tokens(1), 0);
    h.Step();
  }
  EXPECT_GT(step, 900);
}

TEST(SchedulerTest, TheVictimIsOfTheLowestPriorityAndHasTheLeastWorkToLose) {
  // Three run and fill the pool of 12 blocks; the first then needs one more.
  SchedulerHarness h({.num_blocks = 13, .block_size = 4, .prefix_caching = false});
  const uint64_t first = h.Add(Ids(8, 1), Tokens(20));
  const uint64_t large = h.Add(Ids(20, 2), Tokens(20), 1);
  const uint64_t small = h.Add(Ids(12, 3), Tokens(20), 1);
  const uint64_t same_priority = h.Add(Ids(4, 4), Tokens(9), 0);
  while (h.scheduler.stats().preemptions == 0) ASSERT_TRUE(h.Step());
  const std::vector<uint64_t> planned = Planned(h.plan);
  EXPECT_EQ(std::count(planned.begin(), planned.end(), small), 0);
  for (const uint64_t handle : {first, large, same_priority}) {
    EXPECT_EQ(std::count(planned.begin(), planned.end(), handle), 1);
  }
  h.RunAll(300);
  EXPECT_GE(h.seen(small).last_event.num_preemptions, 1);
  EXPECT_EQ(h.seen(first).last_event.num_preemptions, 0);
  for (const uint64_t handle : {first, large, small, same_priority}) h.ExpectCorrect(handle);
}

TEST(SchedulerTest, CachedTokensAreExactAndAtMostAllButTheLast) {
  for (const int32_t length : {1, 7, 8, 9, 16, 17, 24}) {
    for (const int32_t shared : {0, 1, 7, 8, 9, 15, 16, 24}) {
      if (shared > length) continue;
      SchedulerHarness h({.block_size = 8});
      std::vector<int32_t> prompt = Ids(shared);
      while (static_cast<int32_t>(prompt.size()) < length) prompt.push_back(49);
      const uint64_t cold = h.Add(Ids(length), Tokens(1));
      h.RunAll(10);
      const int64_t computed = h.runner.tokens_computed();
      EXPECT_EQ(computed, length);
      const uint64_t warm = h.Add(prompt, Tokens(1));
      h.RunAll(10);
      const int32_t reusable = std::min(shared, length - 1);
      const int32_t cached = reusable < 8 ? 0 : reusable;
      EXPECT_EQ(h.seen(cold).last_event.cached_tokens, 0);
      EXPECT_EQ(h.seen(warm).last_event.cached_tokens, cached);
      EXPECT_EQ(h.runner.tokens_computed() - computed, length - cached);
      h.ExpectCorrect(warm);
      EXPECT_EQ(h.scheduler.stats().prefix_query_tokens, 2 * length);
      EXPECT_EQ(h.scheduler.stats().prefix_hit_tokens, cached);
    }
  }
}

TEST(SchedulerTest, ANextChatTurnComputesNothingButItsNewTokens) {
  for (const int32_t block_size : {1, 4, 7, 16, 32}) {
    SchedulerHarness h({.block_size = block_size});
    std::vector<int32_t> chat = Ids(6);
    int32_t known = 0;  // the last sampled token of a turn is never stored
    for (int32_t turn = 0; turn < 6; ++turn) {
      const int64_t computed = h.runner.tokens_computed();
      const uint64_t handle = h.Add(chat, Tokens(9));
      h.RunAll(20);
      h.ExpectCorrect(handle);
      const int32_t cached = known < block_size ? 0 : known;
      EXPECT_EQ(h.seen(handle).last_event.cached_tokens, cached);
      EXPECT_EQ(h.runner.tokens_computed() - computed, static_cast<int64_t>(chat.size()) - cached + 8);
      chat.insert(chat.end(), h.seen(handle).ids[0].begin(), h.seen(handle).ids[0].end());
      known = static_cast<int32_t>(chat.size()) - 1;
      for (int32_t i = 0; i < 5; ++i) chat.push_back((turn + i) % 7);
    }
  }
}

TEST(SchedulerTest, APreemptedSequenceFindsAllThatItHadStored) {
  SchedulerHarness h({.block_size = 8});
  const uint64_t handle = h.Add(Ids(11), Tokens(20));
  for (int i = 0; i < 4; ++i) h.Step();
  const int64_t computed = h.runner.tokens_computed();
  h.scheduler.SetHeld(handle, true);
  h.scheduler.SetHeld(handle, false);
  h.Step();
  EXPECT_EQ(h.runner.tokens_computed() - computed, 1);
  h.RunAll(50);
  h.ExpectCorrect(handle);
  EXPECT_EQ(h.seen(handle).last_event.cached_tokens, 0);  // of its own work
}

TEST(SchedulerTest, AForkedPromptIsFoundToTheTokenWhileItsSequencesRun) {
  SchedulerHarness h({.block_size = 8});
  h.Add(Ids(13), Tokens(20, 3));
  h.Step();
  std::vector<int32_t> prompt = Ids(13);
  prompt.push_back(3);
  const uint64_t follower = h.Add(prompt, Tokens(4));
  h.RunAll(50);
  EXPECT_EQ(h.seen(follower).last_event.cached_tokens, 13);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
}

TEST(SchedulerTest, RecomputationAfterAPreemptionIsNotCountedAsHits) {
  SchedulerHarness h({.num_blocks = 13, .block_size = 4});
  for (int32_t i = 0; i < 6; ++i) h.Add(Ids(9, i), Tokens(30));
  h.RunAll(1000);
  EXPECT_GT(h.scheduler.stats().preemptions, 3);
  EXPECT_EQ(h.scheduler.stats().prefix_hit_tokens, 0);
  EXPECT_EQ(h.scheduler.stats().prefix_query_tokens, 6 * 9);
  for (const auto& [handle, seen] : h.all_seen()) EXPECT_EQ(seen.last_event.cached_tokens, 0);
}

TEST(SchedulerTest, NothingIsPublishedByAStepThatDidNotComplete) {
  SchedulerHarness h({.block_size = 4});
  const uint64_t aborted = h.Add(Ids(12), Tokens(4));
  ASSERT_TRUE(h.Schedule());
  h.Abort(aborted);
  EXPECT_EQ(h.blocks.stats().active, 3);  // held until the step is done
  h.Commit();
  EXPECT_EQ(h.blocks.stats().active, 0);
  EXPECT_EQ(h.blocks.stats().cached, 0);
  h.Add(Ids(12), Tokens(4));
  ASSERT_TRUE(h.Schedule());
  h.FailStep(absl::InternalError("broken"));
  const uint64_t last = h.Add(Ids(12), Tokens(4));
  h.RunAll(10);
  EXPECT_EQ(h.seen(last).last_event.cached_tokens, 0);
  h.ExpectCorrect(last);
  h.ExpectIdle();
}

TEST(SchedulerTest, AFailedStepEndsItsRequestsAndNoOther) {
  SchedulerHarness h({.max_num_seqs = 1});
  const uint64_t failed = h.Add(Ids(4), Tokens(4));
  const uint64_t waiting = h.Add(Ids(5), Tokens(4));
  ASSERT_TRUE(h.Schedule());
  h.FailStep(absl::InternalError("broken"));
  EXPECT_EQ(h.seen(failed).last_event.error, absl::InternalError("broken"));
  EXPECT_EQ(h.seen(failed).last_event.finish_reason, FinishReason::kError);
  h.RunAll(10);
  h.ExpectCorrect(waiting);
  EXPECT_EQ(h.scheduler.stats().requests_failed, 1);
}

TEST(SchedulerTest, AFailedPlanCarriesNoCopyOfSequencesOutsideIt) {
  SchedulerHarness h({.block_size = 8, .max_num_batched_tokens = 4});
  const uint64_t failed = h.Add(Ids(2), Tokens(6, 5)), forked = h.Add(Ids(2, 9), Tokens(6, 5));
  ASSERT_TRUE(h.Step());  // both prompts, and the forks of both
  // The four tokens go to the first request's forks, and so do the copies.
  ASSERT_TRUE(h.Schedule());
  ASSERT_EQ(h.plan.copies.size(), 4u);
  ASSERT_EQ(Planned(h.plan), std::vector<uint64_t>(4, failed));
  h.FailStep(absl::InternalError("broken"));
  EXPECT_TRUE(h.seen(failed).finished);
  h.RunAll(50);
  h.ExpectCorrect(forked);
  h.ExpectIdle();
}

// Prefills take the time of the step, so a newcomer that hit inside a block gets its copy and no token. If the next
// plan, which has it, is in flight when this one fails, it read what was not there, and ends too.
class LostCopyTest : public testing::TestWithParam<std::tuple<bool, std::vector<int32_t>>> {};

TEST_P(LostCopyTest, ACopyThatAFailedPlanLostIsMadeAgainOrEndsWithIt) {
  const auto& [overlaps, windows] = GetParam();
  int begun_again = 0, ended = 0;
  for (int prefills = 2; prefills <= 8; ++prefills) {
    SchedulerHarness h({.num_blocks = 400,
                        .block_size = 8,
                        .max_plans_in_flight = overlaps ? 2 : 1,
                        .group_windows = windows,
                        .itl_target = absl::Milliseconds(7),
                        .seconds_per_prefill_token = 1e-3});
    for (int i = 0; i < 40; ++i) h.Add(Ids(20 + i % 50, 100 + i), Tokens(2)), h.RunAll(100);
    h.Add(Ids(12), Tokens(2));
    h.RunAll(100);
    for (int i = 0; i < prefills; ++i) h.Add(Ids(110, 200 + i), Tokens(4));
    const uint64_t newcomer = h.Add(Ids(11), Tokens(4));
    const auto holds = [newcomer](const SchedulePlan& plan) {
      const std::vector<uint64_t> planned = Planned(plan);
      return std::find(planned.begin(), planned.end(), newcomer) != planned.end();
    };
    ASSERT_TRUE(h.Schedule());
    const bool lost = !h.plan.copies.empty() && !holds(h.plan);
    const bool read = overlaps && h.Schedule() && lost && holds(h.plan);
    h.FailStep(absl::InternalError("broken"));
    if (read) {
      EXPECT_EQ(h.seen(newcomer).last_event.error.message(), "broken");
    }
    h.RunAll(500);
    h.ExpectIdle();
    if (lost && !read) h.ExpectCorrect(newcomer);
    begun_again += lost && !read;
    ended += read;
    // Nobody finds what was never copied.
    const uint64_t later = h.Add(Ids(11), Tokens(4));
    h.RunAll(100);
    h.ExpectCorrect(later);
  }
  EXPECT_GT(overlaps ? ended : begun_again, 0);
}

INSTANTIATE_TEST_SUITE_P(All, LostCopyTest,
                         testing::Combine(testing::Bool(),
                                          testing::Values(std::vector<int32_t>{}, std::vector<int32_t>{0, 24},
                                                          std::vector<int32_t>{24})));

TEST(SchedulerTest, BadLogitsFailTheirRequestAlone) {
  SchedulerHarness h({});
  SamplingParams params = Tokens(6, 2);
  params.seed = 5;
  const uint64_t bad = h.Add(Ids(4), params);
  const uint64_t good = h.Add(Ids(4, 2), Tokens(6));
  h.Step();
  h.runner.bad_seeds = {5};
  h.RunAll(20);
  for (const SequenceOutput& event : h.seen(bad).final_events) {
    EXPECT_EQ(event.finish_reason, FinishReason::kError);
    EXPECT_EQ(event.error.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(event.error.message().find("logits of request hold NaN or infinity"), 0u);
  }
  h.ExpectCorrect(good);
  h.ExpectIdle();
}

TEST(SchedulerTest, DeadlinesEndWaitingAndRunningRequests) {
  SchedulerHarness h({.max_num_seqs = 1});
  const uint64_t running = h.Add(Ids(4), Tokens(100), 0, h.now + absl::Seconds(5));
  const uint64_t waiting = h.Add(Ids(4, 2), Tokens(4), 0, h.now + absl::Seconds(3));
  const uint64_t patient = h.Add(Ids(4, 3), Tokens(4), 0, h.now + absl::Seconds(60));
  h.RunAll(50);
  EXPECT_EQ(h.seen(running).ids[0].size(), 5u);
  EXPECT_TRUE(h.seen(waiting).ids[0].empty());
  EXPECT_EQ(h.seen(waiting).last_event.error.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(h.seen(running).last_event.error.code(), absl::StatusCode::kDeadlineExceeded);
  h.ExpectCorrect(patient);
  h.ExpectIdle();
}

TEST(SchedulerTest, AnAbortTakesEffectInTheMiddleOfAPrefill) {
  SchedulerHarness h({.max_num_batched_tokens = 8});
  const uint64_t aborted = h.Add(Ids(60), Tokens(4, 4));
  h.Step();
  h.Abort(aborted);
  EXPECT_EQ(h.seen(aborted).last_event.finish_reason, FinishReason::kAborted);
  for (const SequenceOutput& event : h.seen(aborted).final_events) EXPECT_EQ(event.token_id, -1);
  h.ExpectIdle();
  h.Abort(aborted);  // late ones are ignored
  h.Abort(12345);
  EXPECT_FALSE(h.Step());
  EXPECT_EQ(h.scheduler.stats().requests_aborted, 1);
}

TEST(SchedulerTest, SequencesOfOneRequestShareItsPromptAndSampleApart) {
  for (const int32_t prompt_len : {1, 7, 8, 9, 16, 20}) {
    for (const int32_t max_tokens : {1, 12}) {
      for (const bool caching : {false, true}) {
        SchedulerHarness h({.block_size = 8, .prefix_caching = caching});
        const uint64_t handle = h.Add(Ids(prompt_len), Tokens(max_tokens, 8));
        h.RunAll(50);
        h.ExpectCorrect(handle);
        // The prompt is computed once, and of each sequence's output all but the last token.
        EXPECT_EQ(h.runner.tokens_computed(), prompt_len + 8 * (max_tokens - 1));
        h.ExpectIdle();
      }
    }
  }
}

TEST(SchedulerTest, MoreSequencesThanSlotsRunInWaves) {
  SchedulerHarness h({.max_num_seqs = 4});
  const uint64_t handle = h.Add(Ids(20), Tokens(10, 9));
  h.RunAll(200);
  h.ExpectCorrect(handle);
  h.ExpectIdle();
}

TEST(SchedulerTest, WithTheFirstSequenceAbortedAnotherComputesThePrompt) {
  SchedulerHarness h({.max_num_batched_tokens = 8});
  const uint64_t handle = h.Add(Ids(30), Tokens(5, 3));
  h.Step();
  h.AbortSequence(handle, 0);
  h.AbortSequence(handle, 1);
  h.RunAll(50);
  EXPECT_EQ(h.seen(handle).final_events[0].finish_reason, FinishReason::kAborted);
  EXPECT_EQ(h.seen(handle).final_events[2].finish_reason, FinishReason::kLength);
  EXPECT_EQ(h.seen(handle).ids[2].size(), 5u);
  h.ExpectCorrectSoFar(handle);
  h.ExpectIdle();
}

TEST(SchedulerTest, PromptScoresComeOnceWhateverTheCacheAndPreemptions) {
  for (const int32_t length : {7, 9, 21, 33}) {
    SchedulerHarness h({.num_blocks = 14, .block_size = 4, .max_num_batched_tokens = 6});
    SamplingParams params = Tokens(8, 2);
    params.prompt_logprobs = 0;
    h.Add(Ids(length), Tokens(1));
    h.RunAll(50);
    const uint64_t first = h.Add(Ids(length), params), second = h.Add(Ids(length), params);
    h.Add(Ids(11, 4), Tokens(25));
    h.RunAll(500);
    h.ExpectCorrect(first);
    h.ExpectCorrect(second);
    h.ExpectIdle();
  }
}

TEST(SchedulerTest, EndingIdsAreBannedBelowMinTokensOnly) {
  SchedulerHarness h({});
  SamplingParams params = Tokens(6);
  params.ignore_eos = false;
  params.min_tokens = 2;
  params.stop_token_ids = {9};
  h.Add(Ids(4), params);
  for (int32_t position = 0; position < 3; ++position) {
    ASSERT_TRUE(h.Schedule());
    ASSERT_EQ(h.plan.samples.size(), 1u);
    const auto banned = h.plan.samples[0].extras().banned_ids;
    const std::vector<int32_t> ids(banned.begin(), banned.end());
    EXPECT_EQ(ids, position < 2 ? (std::vector<int32_t>{7, 9}) : std::vector<int32_t>{});
    EXPECT_EQ(h.plan.samples[0].output_position, static_cast<uint32_t>(position));
    h.Commit();
    if (!h.scheduler.HasWork()) break;
  }
}

TEST(SchedulerTest, WhenNothingCanAdvanceTheFirstRequestFails) {
  SchedulerHarness h({.num_blocks = 9, .block_size = 8, .record = false});  // it would not know of the leak
  const uint64_t first = h.Add(Ids(10), Tokens(20)), second = h.Add(Ids(10, 2), Tokens(20));
  {
    BlockTable leak = h.blocks.NewTable();  // what a bug would do
    ASSERT_TRUE(h.blocks.Reserve(leak, 64, nullptr).ok());
    EXPECT_FALSE(h.Schedule());
    EXPECT_TRUE(h.seen(first).finished);
    EXPECT_EQ(h.seen(first).last_event.error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(h.seen(second).finished);
  }
  h.RunAll(50);
  h.ExpectCorrect(second);
}

// 264 blocks: 10 are left to what runs. 64 blocks: none.
TEST(SchedulerTest, AStartLeavesBlocksToThoseThatRunUnlessThePoolIsSmall) {
  for (const auto& [pool, kept] : {std::pair{264, 10}, {64, 0}}) {
    SCOPED_TRACE(pool);
    SchedulerHarness h({.num_blocks = 1 + pool, .prefix_caching = false, .max_model_len = 8 * pool});
    h.Add(Ids(8 * pool / 2), Tokens(1));
    h.Add(Ids(8 * (pool / 2 - kept + 1), 2), Tokens(1));
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.sequences.size(), 1u) << "it is one block too long";
    h.Commit();
    h.RunAll(10);
    h.Add(Ids(8 * pool / 2), Tokens(1));
    h.Add(Ids(8 * (pool / 2 - kept), 2), Tokens(1));
    ASSERT_TRUE(h.Schedule());
    EXPECT_EQ(h.plan.sequences.size(), 2u);
    h.Commit();
    h.Add(Ids(8 * pool - 1), Tokens(1));
    h.RunAll(10);
    for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
  }
}

TEST(SchedulerTest, AHeldRequestHasNoBlocksAndDelaysNobodyUntilItGoesOn) {
  HarnessOptions options;
  options.max_num_seqs = 1;
  SchedulerHarness harness(options);
  SamplingParams params;
  params.max_tokens = 20;
  params.ignore_eos = true;
  const uint64_t first = harness.Add(std::vector<int32_t>(10, 1), params);
  for (int i = 0; i < 5; ++i) harness.Step();
  harness.scheduler.SetHeld(first, true);
  EXPECT_EQ(harness.blocks.stats().active, 0);
  EXPECT_EQ(harness.scheduler.stats().requests_running, 0);
  EXPECT_EQ(harness.scheduler.stats().requests_waiting, 0) << "a held request keeps nobody else out";
  EXPECT_EQ(harness.scheduler.stats().requests_held, 1);
  EXPECT_EQ(harness.scheduler.stats().waiting_prompt_tokens, 0);
  EXPECT_FALSE(harness.scheduler.HasWork());
  EXPECT_FALSE(harness.Step());
  const uint64_t second = harness.Add(std::vector<int32_t>(10, 2), params);
  while (!harness.seen(second).finished) ASSERT_TRUE(harness.Step());
  EXPECT_EQ(harness.seen(first).ids[0].size(), 5u);
  harness.scheduler.SetHeld(first, false);
  harness.scheduler.SetHeld(first, false);
  EXPECT_EQ(harness.scheduler.stats().requests_waiting, 1);
  EXPECT_EQ(harness.scheduler.stats().waiting_prompt_tokens, 10);
  harness.scheduler.SetHeld(second, true);  // has finished
  harness.RunAll(100);
  for (uint64_t handle : {first, second}) harness.ExpectCorrect(handle);
  const uint64_t third = harness.Add(std::vector<int32_t>(10, 3), params);
  EXPECT_EQ(harness.scheduler.stats().requests_waiting, 1);
  harness.scheduler.SetHeld(third, true);
  EXPECT_EQ(harness.scheduler.stats().requests_waiting, 0);
  EXPECT_EQ(harness.scheduler.stats().requests_held, 1);
  harness.Abort(third);
  EXPECT_EQ(harness.scheduler.stats().requests_held, 0);
  EXPECT_EQ(harness.scheduler.stats().requests_waiting, 0);
  EXPECT_EQ(harness.scheduler.stats().waiting_prompt_tokens, 0);
  harness.ExpectIdle();
}

TEST(SchedulerTest, APromptHeldAfterEachStepGoesOnWhereItsScoresEnd) {
  constexpr int32_t kPrompt = 33, kOutput = 8, kBlock = 4;
  SchedulerHarness h({.block_size = kBlock, .max_num_batched_tokens = 6});
  SamplingParams params = Tokens(kOutput);
  params.prompt_logprobs = 0;
  const uint64_t handle = h.Add(Ids(kPrompt), params);
  int32_t steps = 0;
  for (; !h.seen(handle).finished; ++steps) {
    ASSERT_LT(steps, 50);
    ASSERT_TRUE(h.Step());
    h.scheduler.SetHeld(handle, true);
    h.scheduler.SetHeld(handle, false);
  }
  h.ExpectCorrect(handle);
  EXPECT_LE(h.runner.tokens_computed(), kPrompt + kOutput + steps * kBlock) << "more than a block again for each hold";
  EXPECT_EQ(h.seen(handle).last_event.cached_tokens, 0);
  h.ExpectIdle();
}

TEST(SchedulerTest, StatisticsCountRequestsAndTokens) {
  SchedulerHarness h({.max_num_seqs = 1});
  h.Add(Ids(10), Tokens(3));
  h.Add(Ids(20, 2), Tokens(3));
  EXPECT_EQ(h.scheduler.stats().requests_waiting, 2);
  EXPECT_EQ(h.scheduler.stats().waiting_prompt_tokens, 30);
  h.Step();
  EXPECT_EQ(h.scheduler.stats().requests_running, 1);
  EXPECT_EQ(h.scheduler.stats().waiting_prompt_tokens, 20);
  h.RunAll(20);
  EXPECT_EQ(h.scheduler.stats().requests_finished, 2);
  EXPECT_EQ(h.scheduler.stats().prompt_tokens, 30);
  EXPECT_EQ(h.scheduler.stats().generation_tokens, 6);
  EXPECT_EQ(h.scheduler.stats().steps, 6);
}

}  // namespace
}  // namespace quire
