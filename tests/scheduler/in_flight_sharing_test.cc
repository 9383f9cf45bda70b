#include <algorithm>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/scheduler_harness.h"
#include "tests/testing/sim_loop.h"

namespace quire {
namespace {

constexpr int kCopies = 16;
constexpr int32_t kOutputs = 20;

// --- equal prompts at once

struct EqualCase {
  int32_t prompt_len = 0, block_size = 0, budget = 0, token_us = 0;
};

void PrintTo(const EqualCase& c, std::ostream* os) {
  *os << c.prompt_len << " tokens of " << c.token_us << " us, blocks of " << c.block_size << ", budget " << c.budget;
}

class EqualPromptsTest : public testing::TestWithParam<EqualCase> {
 protected:
  SimLoopOptions Options() const {
    SimLoopOptions options;
    options.scheduler.max_num_batched_tokens = GetParam().budget;
    options.block_size = GetParam().block_size;
    options.cost.prefill_token = 1e-6 * GetParam().token_us;
    return options;
  }
  SimRequest Request() const { return {.prompt_len = GetParam().prompt_len, .max_tokens = kOutputs, .prompt_seed = 1}; }

  absl::Duration FirstTokenAlone() const {
    SimLoop loop(Options());
    const uint64_t alone = loop.Add(Request());
    loop.RunAll(100);
    return loop.seen(alone).first_token - loop.seen(alone).arrival;
  }

  // Runs 16 of them, the first of which is aborted after `abort_after` steps, and judges the others. Returns how many
  // prompt tokens were computed.
  int64_t Run(int abort_after) {
    const absl::Duration limit = FirstTokenAlone() * 1.1;
    SimLoop loop(Options());
    for (int i = 0; i < kCopies; ++i) loop.Add(Request());
    int64_t rows = 0;
    for (int step = 0; loop.scheduler.HasWork(); ++step) {
      if (step == abort_after) loop.scheduler.Abort(1, loop.now, &loop.outputs);
      loop.Step();
      EXPECT_EQ(loop.scheduler.CheckInvariants(), absl::OkStatus());
      rows += loop.plan.num_tokens;
    }
    int64_t decode_rows = 0;
    for (const auto& [handle, seen] : loop.all_seen()) {
      decode_rows += seen.tokens > 0 ? seen.tokens - 1 : 0;
      if (handle == 1 && abort_after >= 0) continue;
      EXPECT_TRUE(seen.complete()) << handle;
      EXPECT_LE(seen.first_token - seen.arrival, limit) << handle;
    }
    return rows - decode_rows;
  }
};

TEST_P(EqualPromptsTest, AreComputedOnceAndNoneIsLate) { EXPECT_EQ(Run(-1), GetParam().prompt_len); }

TEST_P(EqualPromptsTest, AreComputedOnceAlsoIfTheFirstIsAborted) {
  const int steps = (GetParam().prompt_len + GetParam().budget - 1) / GetParam().budget;
  for (int abort_after = 1; abort_after <= steps; ++abort_after) {
    SCOPED_TRACE(abort_after);
    EXPECT_EQ(Run(abort_after), GetParam().prompt_len);
  }
}

// Aborted while a step is in flight: what that computed is kept.
TEST_P(EqualPromptsTest, AreComputedOnceAlsoIfTheFirstIsAbortedInAStep) {
  const EqualCase& c = GetParam();
  SchedulerHarness h(
      {.num_blocks = 2000, .block_size = c.block_size, .max_num_batched_tokens = c.budget, .max_model_len = 1200});
  std::mt19937 random(5);
  std::vector<int32_t> prompt(c.prompt_len);
  for (int32_t& id : prompt) id = static_cast<int32_t>(random() % FakeRunner::kVocabSize);
  SamplingParams params;
  params.max_tokens = 1;
  params.logprobs = 0;
  for (int i = 0; i < kCopies; ++i) h.Add(prompt, params);
  if (c.budget < c.prompt_len) h.Step();
  ASSERT_TRUE(h.Schedule());
  h.Abort(1);
  h.Commit();
  h.RunAll(100);
  for (uint64_t handle = 2; handle <= kCopies; ++handle) h.ExpectCorrect(handle);
  EXPECT_EQ(h.runner.tokens_computed(), c.prompt_len);
  h.ExpectIdle();
}

std::vector<EqualCase> AllEqualCases() {
  std::vector<EqualCase> cases;
  for (const int32_t prompt_len : {1000, 1008, 1024, 1025}) {
    for (const int32_t block_size : {16, 32}) {
      for (const int32_t budget : {2048, 256}) {
        for (const int32_t token_us : {20, 100}) cases.push_back({prompt_len, block_size, budget, token_us});
      }
    }
  }
  return cases;
}

std::string CaseName(const testing::TestParamInfo<EqualCase>& info) {
  const EqualCase& c = info.param;
  return absl::StrCat("Tokens", c.prompt_len, "Block", c.block_size, "Budget", c.budget, "Us", c.token_us);
}

INSTANTIATE_TEST_SUITE_P(All, EqualPromptsTest, testing::ValuesIn(AllEqualCases()), CaseName);

// --- equal beginnings

// `own` tokens behind `shared` ones that depend on nothing but the seed.
std::vector<int32_t> Prompt(uint32_t seed, int32_t shared, uint32_t own_seed, int32_t own) {
  std::vector<int32_t> prompt;
  for (std::mt19937 random(seed); static_cast<int32_t>(prompt.size()) < shared;) {
    prompt.push_back(static_cast<int32_t>(random() % FakeRunner::kVocabSize));
  }
  for (std::mt19937 random(own_seed); own > 0; --own) {
    prompt.push_back(static_cast<int32_t>(random() % FakeRunner::kVocabSize));
  }
  return prompt;
}

SamplingParams Outputs(int32_t max_tokens) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  params.logprobs = 0;
  params.ignore_eos = true;
  return params;
}

// Prompt tokens computed so far: all rows but those of sampled tokens.
int64_t PromptRows(const SchedulerHarness& h) {
  int64_t rows = h.runner.tokens_computed();
  for (const auto& [handle, seen] : h.all_seen()) {
    rows -= seen.ids[0].empty() ? 0 : static_cast<int64_t>(seen.ids[0].size()) - 1;
  }
  return rows;
}

TEST(InFlightSharingTest, AnEqualBeginningIsComputedOnce) {
  for (const int32_t budget : {2048, 128}) {
    for (const int32_t shared : {296, 300, 303}) {
      SCOPED_TRACE(absl::StrCat(budget, " ", shared));
      SchedulerHarness h({.num_blocks = 1000, .max_num_batched_tokens = budget, .max_model_len = 512});
      int32_t own = 0;
      for (int32_t i = 0; i < 12; ++i) {
        own += 50 + 3 * i;
        h.Add(Prompt(1, shared, 100 + i, 50 + 3 * i), Outputs(8));
      }
      h.RunAll(500);
      for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
      h.ExpectIdle();
      EXPECT_LE(PromptRows(h), shared + own + 11 * 7);
    }
  }
}

// Two families at once, each with its own producer, and strangers between them.
TEST(InFlightSharingTest, EachFollowsItsOwnAndStrangersFollowNobody) {
  SchedulerHarness h({.num_blocks = 1000, .max_num_batched_tokens = 96, .max_model_len = 512});
  for (int32_t i = 0; i < 8; ++i) {
    h.Add(Prompt(1, 200, 100 + i, 3), Outputs(8));
    h.Add(Prompt(2, 200, 200 + i, 3), Outputs(8));
    h.Add(Prompt(1000 + i, 40, 1, 0), Outputs(8));
  }
  h.RunAll(500);
  for (const auto& [handle, seen] : h.all_seen()) h.ExpectCorrect(handle);
  h.ExpectIdle();
  EXPECT_LE(PromptRows(h), 2 * (200 + 8 * (3 + 7)) + 8 * 40);
}

TEST(InFlightSharingTest, NobodyFollowsOneWithAnotherSaltOrReadsWithoutTheCache) {
  SchedulerHarness h({.num_blocks = 1000, .max_model_len = 512});
  h.Add(Prompt(1, 200, 1, 0), Outputs(2));
  SamplingParams scored = Outputs(2);
  scored.prompt_logprobs = 0;
  h.Add(Prompt(1, 200, 1, 0), scored);
  h.context.salt = "other";
  h.Add(Prompt(1, 200, 1, 0), Outputs(2));
  ASSERT_TRUE(h.Step());
  EXPECT_EQ(h.scheduler.stats().requests_running, 3);
  h.RunAll(10);
  EXPECT_EQ(PromptRows(h), 600);
}

TEST(InFlightSharingTest, AFollowerGoesOnByItselfWhenTheProducerIsHeldOrFails) {
  for (const bool held : {true, false}) {
    SchedulerHarness h({.num_blocks = 1000, .max_num_batched_tokens = 64, .max_model_len = 512});
    const uint64_t producer = h.Add(Prompt(1, 300, 1, 0), Outputs(4));
    const uint64_t follower = h.Add(Prompt(1, 300, 2, 1), Outputs(4));
    h.Step();
    h.Step();
    EXPECT_TRUE(h.seen(follower).ids[0].empty());
    EXPECT_EQ(h.runner.tokens_computed(), 128) << "the follower has computed nothing";
    EXPECT_EQ(h.scheduler.stats().requests_waiting, 1);
    if (held) {
      h.scheduler.SetHeld(producer, true);
    } else {
      ASSERT_TRUE(h.Schedule());
      h.FailStep(absl::InternalError("broken"));
    }
    h.RunAll(100);
    h.ExpectCorrect(follower);
    EXPECT_LE(PromptRows(h), 301 + (held ? 0 : 7));
    EXPECT_EQ(h.seen(follower).last_event.cached_tokens, 128);
    if (!held) continue;
    h.scheduler.SetHeld(producer, false);
    h.RunAll(100);
    h.ExpectCorrect(producer);
  }
}

TEST(InFlightSharingTest, APreemptedProducerIsFollowedAgain) {
  SimLoopOptions options;
  options.scheduler.max_num_batched_tokens = 128;
  options.scheduler.max_num_seqs = 1;
  SimLoop loop(options);
  const SimRequest shared = {.prompt_len = 1000, .max_tokens = 2, .prompt_seed = 7, .priority = 5};
  loop.Add(shared);
  loop.Add(shared);
  loop.Step();
  const uint64_t urgent = loop.Add({.prompt_len = 200, .max_tokens = 4});
  int64_t rows = loop.plan.num_tokens;
  while (loop.scheduler.HasWork()) {
    loop.Step();
    rows += loop.plan.num_tokens;
  }
  EXPECT_EQ(loop.seen(1).last_event.num_preemptions, 1);
  EXPECT_LT(loop.seen(urgent).end, loop.seen(1).first_token);
  EXPECT_LE(rows, 1000 + 15 + 200 + 4 + 2 * 2);
}

// Families of prompts that share their beginnings, with aborts in and between steps, failures, holds and too few
// blocks.
TEST(InFlightSharingTest, RandomLoadsGiveTheTokensThatEachRequestGivesAlone) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int32_t budgets[] = {17, 64, 300}, pools[] = {40, 70, 600};
    SchedulerHarness h({.num_blocks = pools[random() % 3],
                        .max_num_seqs = random() % 4 == 0 ? 3 : 64,
                        .max_num_batched_tokens = budgets[random() % 3],
                        .max_model_len = 288,
                        .integrity = true});
    std::vector<uint64_t> disturbed, held;
    uint64_t last = 0;
    const auto disturb = [&] {
      if (last == 0 || random() % 12 != 0) return;
      disturbed.push_back(1 + random() % last);
      h.Abort(disturbed.back());
    };
    for (int step = 0; last < 40 || h.scheduler.HasWork() || !held.empty(); ++step) {
      ASSERT_LT(step, 20000);
      for (uint32_t burst = random() % 6; burst > 0 && last < 40; --burst) {
        const auto shared = static_cast<int32_t>(40 + random() % 3 * 70), own = static_cast<int32_t>(random() % 5 * 7);
        SamplingParams params = Outputs(static_cast<int32_t>(1 + random() % 12));
        params.seed = random();
        params.n = random() % 6 == 0 ? 3 : 1;
        last = h.Add(Prompt(random() % 2, shared, random() % 2, own), params, static_cast<int32_t>(random() % 2));
      }
      disturb();
      if (random() % 10 == 0 && last > 0) {
        held.push_back(1 + random() % last);
        h.scheduler.SetHeld(held.back(), true);
      } else if (!held.empty() && random() % 4 == 0) {
        h.scheduler.SetHeld(held.back(), false);
        held.pop_back();
      }
      if (!h.Schedule()) continue;
      disturb();
      if (random() % 60 == 0) {
        for (const auto& entry : h.plan.sequences) disturbed.push_back(entry.sequence->group->request.handle);
        h.FailStep(absl::InternalError("broken"));
      } else {
        h.Commit();
      }
      ASSERT_FALSE(HasFailure());
    }
    for (const auto& [handle, seen] : h.all_seen()) {
      EXPECT_TRUE(seen.finished);
      if (std::find(disturbed.begin(), disturbed.end(), handle) == disturbed.end()) {
        h.ExpectCorrect(handle);
      } else {
        h.ExpectCorrectSoFar(handle);
      }
    }
    h.ExpectIdle();
    ASSERT_FALSE(HasFailure());
  }
}

// --- no convoy

// An urgent request for what a humble one computes, beside `others` that take most of each step.
bool UrgentFollowsHumble(int others) {
  SimLoopOptions options;
  options.scheduler.max_num_batched_tokens = 256;
  SimLoop loop(options);
  for (int i = 0; i < others; ++i) loop.Add({.prompt_len = 4000, .max_tokens = 2, .priority = 1});
  loop.Step();
  loop.Add({.prompt_len = 4000, .max_tokens = 2, .prompt_seed = 7, .priority = 5});
  loop.Step();
  EXPECT_NE(loop.PartOf(others + 1), nullptr);
  const uint64_t urgent = loop.Add({.prompt_len = 4000, .max_tokens = 2, .prompt_seed = 7, .priority = 0});
  loop.Step();
  const bool follows = loop.PartOf(urgent) == nullptr;
  loop.RunAll(500);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
  return follows;
}

TEST(InFlightSharingTest, ASlowProducerIsNotFollowed) {
  EXPECT_TRUE(UrgentFollowsHumble(0));
  EXPECT_FALSE(UrgentFollowsHumble(3));
}

TEST(InFlightSharingTest, AFewSharedTokensAreNotWaitedFor) {
  SchedulerHarness h({.num_blocks = 1000, .max_model_len = 1024});
  h.Add(Prompt(1, 31, 1, 300), Outputs(2));
  h.Add(Prompt(1, 31, 2, 300), Outputs(2));
  h.Add(Prompt(2, 100, 3, 300), Outputs(2));
  h.Add(Prompt(2, 100, 4, 300), Outputs(2));
  ASSERT_TRUE(h.Step());
  EXPECT_EQ(h.scheduler.stats().requests_running, 4) << "less than half of what each computes meanwhile";
  h.RunAll(10);
}

TEST(InFlightSharingTest, StrangersStartBehindFollowersWhosePlacesAreKept) {
  SimLoopOptions options;
  options.scheduler.max_num_seqs = 4;
  SimLoop loop(options);
  const SimRequest shared = {.prompt_len = 1000, .prompt_seed = 7};
  for (int i = 0; i < 3; ++i) loop.Add(shared);
  const uint64_t first = loop.Add({}), second = loop.Add({});
  loop.Step();
  EXPECT_NE(loop.PartOf(1), nullptr);
  EXPECT_EQ(loop.PartOf(2), nullptr);
  EXPECT_EQ(loop.PartOf(3), nullptr);
  EXPECT_NE(loop.PartOf(first), nullptr);
  EXPECT_EQ(loop.PartOf(second), nullptr) << "it would take the place of a follower";
  loop.Step();
  EXPECT_NE(loop.PartOf(2), nullptr);
  EXPECT_NE(loop.PartOf(3), nullptr);
  loop.RunAll(200);
}

TEST(InFlightSharingTest, ATenantWhoseRequestsFollowHoldsUpNoOther) {
  SimLoopOptions options;
  options.scheduler.policy = PolicyKind::kFair;
  options.scheduler.max_num_batched_tokens = 256;
  SimLoop loop(options);
  for (int i = 0; i < 40; ++i) loop.Add({.prompt_len = 2000, .max_tokens = 2, .prompt_seed = 7, .tenant = "a"});
  const uint64_t other = loop.Add({.prompt_len = 30, .max_tokens = 2, .tenant = "b"});
  loop.Step();
  EXPECT_NE(loop.PartOf(other), nullptr);
  loop.RunAll(200);
  for (const auto& [handle, seen] : loop.all_seen()) EXPECT_TRUE(seen.complete());
}

}  // namespace
}  // namespace quire
