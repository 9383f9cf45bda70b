#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/fake_constraint.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/scheduler_harness.h"

namespace quire {
namespace {

// A tiny alphabet and shared beginnings, so that prefix hits of every length are frequent.
std::vector<int32_t> RandomPrompt(std::mt19937& random) {
  static const std::vector<int32_t> kShared = [] {
    std::mt19937 fixed(99);
    std::vector<int32_t> ids(70);
    for (int32_t& id : ids) id = static_cast<int32_t>(fixed() % 3);
    return ids;
  }();
  std::vector<int32_t> prompt(kShared.begin(), kShared.begin() + random() % kShared.size());
  for (uint32_t extra = 1 + random() % 12; extra > 0; --extra) prompt.push_back(static_cast<int32_t>(random() % 3));
  return prompt;
}

SamplingParams RandomParams(std::mt19937& random) {
  SamplingParams params;
  params.n = random() % 3 == 0 ? static_cast<int32_t>(1 + random() % 8) : 1;
  params.temperature = random() % 3 == 0 ? 0 : 1;
  params.seed = random();
  params.max_tokens = static_cast<int32_t>(1 + random() % 40);
  params.min_tokens = random() % 3 == 0 ? static_cast<int32_t>(random() % (params.max_tokens + 1)) : 0;
  params.ignore_eos = random() % 4 == 0;
  if (random() % 4 == 0) params.stop_token_ids = {static_cast<int32_t>(random() % FakeRunner::kVocabSize)};
  params.logprobs = 0;
  if (random() % 6 == 0) params.prompt_logprobs = 0;
  if (random() % 6 == 0) {
    params.beam_width = params.n + static_cast<int32_t>(1 + random() % 3);
    params.length_penalty = static_cast<float>(random() % 3);
    params.early_stopping = static_cast<EarlyStopping>(random() % 3);
  } else if (random() % 4 == 0) {
    SamplingRules rules;
    rules.repetition_penalty = 1.5f;
    rules.mirostat_tau = static_cast<float>(random() % 8);
    params.rules = std::make_shared<SamplingRules>(rules);
    params.needs_output = true;
  }
  return params;
}

// A prompt that goes on from where some sequence is now, as if forked from it, or one of its own.
std::vector<int32_t> ForkOrRandomPrompt(std::mt19937& random, SchedulerHarness* harness) {
  constexpr size_t kLongest = 80;
  harness->fork_of = {};
  if (harness->all_seen().empty() || random() % 6 != 0) return RandomPrompt(random);
  const auto& [handle, from] = *std::next(harness->all_seen().begin(), random() % harness->all_seen().size());
  const auto index = static_cast<int32_t>(random() % from.ids.size());
  std::vector<int32_t> prompt = from.request.prompt_ids;
  prompt.insert(prompt.end(), from.ids[index].begin(), from.ids[index].end());
  prompt.resize(std::min(prompt.size(), kLongest));
  harness->fork_of = {.handle = handle, .sequence_index = index};
  return prompt;
}

// With a host tier some requests do not read the cache, or do not write it.
void SetBypass(std::mt19937& random, SchedulerHarness* harness) {
  if (harness->options.num_host_blocks == 0) return;
  harness->reads_cache = random() % 5 != 0;
  harness->writes_cache = random() % 5 != 0;
}

// With speculation most texts are of few ids, so that some drafts are right, and requests differ in how many they want.
void SetDrafts(std::mt19937& random, const SchedulerHarness& harness, SamplingParams* params) {
  if (harness.options.max_drafts == 0) return;
  params->top_k = static_cast<int32_t>(random() % 4);
  if (random() % 3 == 0) params->num_speculative_tokens = static_cast<int32_t>(random() % 6);
}

// Parameters; some requests get a constraint, and no log-probabilities, so that tokens are forced.
SamplingParams RandomRequest(std::mt19937& random, SchedulerHarness* harness) {
  SamplingParams params = RandomParams(random);
  SetDrafts(random, *harness, &params);
  harness->constraint = nullptr;
  if (random() % 5 != 0 || params.beam_width != 0) return params;
  params.logprobs = std::nullopt;
  harness->constraint = std::make_shared<testing::FakeConstraint>(FakeRunner::kVocabSize, 7, random() % 64);
  return params;
}

struct PropertyCase {
  const char* name;
  HarnessOptions options;
  bool must_preempt = false;
};

void PrintTo(const PropertyCase& c, std::ostream* os) { *os << c.name; }

BlockHash OneBitHash(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  return {ChainHash(parent, tokens).low & 1, 0};
}

// Every case is run one step at a time and with the next plan made while a step is in flight.
enum class Overlap { kNone, kTwoPlans };

class SchedulerPropertyTest : public ::testing::TestWithParam<std::tuple<PropertyCase, Overlap>> {
 protected:
  static const PropertyCase& Case() { return std::get<0>(GetParam()); }
  static bool overlaps() { return std::get<1>(GetParam()) == Overlap::kTwoPlans; }
  static HarnessOptions Options(uint32_t seed) {
    HarnessOptions options = Case().options;
    options.max_plans_in_flight = overlaps() ? 2 : 1;
    options.eager_runner = seed % 2 == 1;
    return options;
  }
  static uint32_t num_seeds() { return testing::kSanitized ? 4 : 25; }
};

// Requests arrive while others run; whatever the options, each gives the tokens it gives alone.
TEST_P(SchedulerPropertyTest, EveryRequestGivesItsOwnTokensAndFinishesOnce) {
  int64_t preemptions = 0, surplus = 0, copied_in = 0, accepted = 0, refused = 0;
  for (uint32_t seed = 0; seed < num_seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SchedulerHarness harness(Options(seed));
    std::vector<uint64_t> held;
    for (int added = 0; added < 40;) {
      if (random() % 2 == 0 || !harness.scheduler.HasWork()) {
        SetBypass(random, &harness);
        const std::vector<int32_t> prompt = ForkOrRandomPrompt(random, &harness);
        const SamplingParams params = RandomRequest(random, &harness);
        harness.Add(prompt, params, static_cast<int32_t>(random() % 3));
        ++added;
      } else if (random() % 8 == 0) {
        held.push_back(std::prev(harness.all_seen().end(), 1 + random() % added)->first);
        harness.Drain();
        harness.scheduler.SetHeld(held.back(), true);
      } else if (!held.empty() && random() % 6 == 0) {
        harness.Drain();
        harness.scheduler.SetHeld(held.back(), false);
        held.pop_back();
      } else {
        harness.Step();
      }
      ASSERT_FALSE(HasFailure());
    }
    harness.Drain();
    for (uint64_t handle : held) harness.scheduler.SetHeld(handle, false);
    harness.RunAll(40000);
    for (const auto& [handle, seen] : harness.all_seen()) harness.ExpectCorrect(handle);
    harness.ExpectIdle();
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(harness.scheduler.stats().requests_finished, 40);
    if (!Case().options.prefix_caching) {
      EXPECT_EQ(harness.blocks.stats().cached, 0);
    }
    preemptions += harness.scheduler.stats().preemptions;
    surplus += harness.scheduler.stats().surplus_tokens;
    accepted += harness.scheduler.stats().accepted_tokens;
    refused += harness.scheduler.stats().drafted_tokens - harness.scheduler.stats().accepted_tokens;
    copied_in += harness.blocks.stats().copied_in;
  }
  EXPECT_EQ(surplus > 0, overlaps()) << "of sequences that an eos ends";
  EXPECT_EQ(accepted > 0, Case().options.max_drafts > 0);
  EXPECT_EQ(refused > 0, Case().options.max_drafts > 0);
  if (Case().options.num_host_blocks > 0) {
    EXPECT_GE(copied_in, num_seeds() * 4 / 5);
  }
  if (Case().must_preempt) {
    EXPECT_GE(preemptions, num_seeds() * 4 / 5);
  }
}

// The same with aborts of requests and of single sequences at random points, also while a step is in flight and of held
// ones, with steps that fail, with bad logits and with deadlines: nothing leaks and nobody else notices.
TEST_P(SchedulerPropertyTest, AbortsFailuresAndDeadlinesTouchNobodyElse) {
  for (uint32_t seed = 100; seed < 100 + num_seeds(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SchedulerHarness harness(Options(seed));
    std::vector<uint64_t> disturbed;
    const auto disturb = [&](uint64_t last) {
      if (random() % 16 != 0) return;
      const uint64_t handle = 1 + random() % last;
      disturbed.push_back(handle);
      if (random() % 2 == 0) {
        harness.Abort(handle);
      } else {
        harness.AbortSequence(handle, static_cast<int32_t>(random() % 8));
      }
    };
    uint64_t last = 0;
    const auto hold = [&](uint64_t handle, bool held) {
      harness.Drain();
      harness.scheduler.SetHeld(handle, held);
    };
    const auto num_held = [&] { return harness.scheduler.stats().requests_held; };
    for (int step = 0; last < 40 || harness.scheduler.HasWork() || num_held() > 0; ++step) {
      ASSERT_LT(step, 40000);
      if (last > 0 && last < 40 && random() % 12 == 0) hold(1 + random() % last, random() % 2 == 0);
      for (uint64_t handle = 1; last == 40 && num_held() > 0; ++handle) hold(handle, false);
      if (last < 40 && random() % 2 == 0) {
        const bool has_deadline = random() % 5 == 0;
        const absl::Time deadline = has_deadline ? harness.now + absl::Seconds(random() % 60) : absl::InfiniteFuture();
        SetBypass(random, &harness);
        const SamplingParams params = RandomRequest(random, &harness);
        last = harness.Add(ForkOrRandomPrompt(random, &harness), params, static_cast<int32_t>(random() % 3), deadline);
        if (has_deadline) disturbed.push_back(last);
        if (random() % 10 == 0) {
          harness.runner.bad_seeds.push_back(params.seed);
          disturbed.push_back(last);
        }
      }
      if (last > 0) disturb(last);
      const bool made = harness.MaySchedule() && harness.Schedule();
      if (harness.scheduler.num_in_flight() == 0) continue;
      disturb(last);
      if (made && harness.MaySchedule() && random() % 4 != 0) continue;
      if (random() % 100 == 0) {
        for (const ScheduledSequence& entry : harness.earliest_plan().sequences) {
          disturbed.push_back(entry.sequence->group->request.handle);
        }
        harness.FailStep(absl::InternalError("the device fell over"));
      } else {
        harness.Commit();
      }
      ASSERT_FALSE(HasFailure());
    }
    harness.Drain();
    for (const auto& [handle, seen] : harness.all_seen()) {
      EXPECT_TRUE(seen.finished);
      if (std::find(disturbed.begin(), disturbed.end(), handle) == disturbed.end()) {
        harness.ExpectCorrect(handle);
      } else {
        harness.ExpectCorrectSoFar(handle);
      }
    }
    harness.ExpectIdle();
    ASSERT_FALSE(HasFailure());
  }
}

// Blocks are refused at the i-th one, for each i: of a start, of one that runs, of a copy. Whoever cannot go on then
// fails with a reason; nothing leaks, and the others give the tokens they give alone.
TEST_P(SchedulerPropertyTest, ARefusedBlockLeavesNothingBehind) {
  int64_t refusals = 0, failed = 0, finished = 0;
  for (int64_t nth = 1; nth <= 12; nth += testing::kSanitized ? 4 : 1) {
    const uint32_t seed = 200 + nth;
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    HarnessOptions options = Options(seed);
    options.record = false;  // no trace knows of refusals
    SchedulerHarness harness(options);
    bool armed = false;
    for (int added = 0; added < 15 || harness.scheduler.HasWork();) {
      if (added < 15 && random() % 2 == 0) {
        SetBypass(random, &harness);
        const std::vector<int32_t> prompt = ForkOrRandomPrompt(random, &harness);
        SamplingParams params = RandomParams(random);
        SetDrafts(random, harness, &params);
        harness.Add(prompt, params, static_cast<int32_t>(random() % 3));
        ++added;
      }
      if (random() % 3 == 0) {
        const bool fired = harness.blocks.FailAtBlock(nth) == 0;
        refusals += armed && fired;
        armed = true;
      }
      harness.Step();
      ASSERT_FALSE(HasFailure());
    }
    harness.Drain();
    for (const auto& [handle, seen] : harness.all_seen()) {
      EXPECT_TRUE(seen.finished);
      const SequenceOutput& last = seen.last_event;
      if (last.finish_reason == FinishReason::kError) {
        EXPECT_EQ(last.error.code(), absl::StatusCode::kResourceExhausted) << last.error;
        harness.ExpectCorrectSoFar(handle);
        ++failed;
      } else {
        harness.ExpectCorrect(handle);
        ++finished;
      }
    }
    harness.ExpectIdle();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(refusals, 0);
  EXPECT_GT(finished, failed);
}

HarnessOptions With(void (*change)(HarnessOptions&)) {
  HarnessOptions options;
  change(options);
  return options;
}

std::string CaseName(const ::testing::TestParamInfo<std::tuple<PropertyCase, Overlap>>& info) {
  const auto& [property_case, overlap] = info.param;
  return std::string(property_case.name) + (overlap == Overlap::kNone ? "" : "Overlapped");
}

INSTANTIATE_TEST_SUITE_P(
    All, SchedulerPropertyTest,
    ::testing::Combine(
        ::testing::Values(
            PropertyCase{"Plain", With([](HarnessOptions&) {})},
            PropertyCase{"BlockSize1", With([](HarnessOptions& o) { o.block_size = 1, o.num_blocks = 2000; })},
            PropertyCase{"BlockSize16", With([](HarnessOptions& o) { o.block_size = 16; })},
            PropertyCase{"BlockSize32", With([](HarnessOptions& o) { o.block_size = 32; })},
            PropertyCase{"NoCache", With([](HarnessOptions& o) { o.prefix_caching = false; })},
            PropertyCase{"Budget1", With([](HarnessOptions& o) { o.max_num_batched_tokens = 1; })},
            PropertyCase{"Budget7", With([](HarnessOptions& o) { o.max_num_batched_tokens = 7; })},
            PropertyCase{"Budget64", With([](HarnessOptions& o) { o.max_num_batched_tokens = 64; })},
            PropertyCase{"OneAtATime", With([](HarnessOptions& o) { o.max_num_seqs = 1; })},
            PropertyCase{"FourAtATime", With([](HarnessOptions& o) { o.max_num_seqs = 4; })},
            PropertyCase{"TinyPool", With([](HarnessOptions& o) { o.num_blocks = 20; }), true},
            PropertyCase{"TinyPoolNoCache",
                         With([](HarnessOptions& o) { o.num_blocks = 20, o.prefix_caching = false; }), true},
            PropertyCase{"TinyPoolBudget7",
                         With([](HarnessOptions& o) { o.num_blocks = 20, o.max_num_batched_tokens = 7; }), true},
            PropertyCase{"TinyPoolBlockSize1", With([](HarnessOptions& o) { o.num_blocks = 140, o.block_size = 1; }),
                         true},
            PropertyCase{"TinyPoolBlockSize32", With([](HarnessOptions& o) { o.num_blocks = 6, o.block_size = 32; }),
                         true},
            PropertyCase{"Integrity", With([](HarnessOptions& o) { o.integrity = true; })},
            PropertyCase{"IntegrityTinyPool", With([](HarnessOptions& o) { o.integrity = true, o.num_blocks = 20; }),
                         true},
            PropertyCase{"IntegrityTinyPoolLru", With([](HarnessOptions& o) {
                           o.integrity = true, o.num_blocks = 20, o.eviction = EvictionPolicy::kLru;
                         }),
                         true},
            PropertyCase{"HostTier", With([](HarnessOptions& o) { o.num_blocks = 20, o.num_host_blocks = 12; }), true},
            PropertyCase{"HostTierRecompute", With([](HarnessOptions& o) {
                           o.num_blocks = 20, o.num_host_blocks = 40, o.preemption = PreemptionMode::kRecompute;
                         }),
                         true},
            PropertyCase{"HostTierSwapNoCache", With([](HarnessOptions& o) {
                           o.num_blocks = 20, o.num_host_blocks = 100, o.prefix_caching = false;
                           o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"IntegrityHostTierSwapBudget7", With([](HarnessOptions& o) {
                           o.num_blocks = 20, o.num_host_blocks = 60, o.integrity = true, o.max_num_batched_tokens = 7;
                           o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"Groups", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 400;
                         })},
            PropertyCase{"GroupsTinyPool", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40;
                         }),
                         true},
            PropertyCase{"GroupsTinyPoolBudget7", With([](HarnessOptions& o) {
                           o.group_windows = {0, 2, 40}, o.num_blocks = 50, o.max_num_batched_tokens = 7;
                         }),
                         true},
            PropertyCase{"GroupsTinyPoolNoCache", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40, o.prefix_caching = false;
                         }),
                         true},
            PropertyCase{"IntegrityGroups", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40, o.integrity = true;
                         }),
                         true},
            PropertyCase{"IntegrityAllGroupsSlide", With([](HarnessOptions& o) {
                           o.group_windows = {24, 8}, o.num_blocks = 22, o.integrity = true;
                         }),
                         true},
            PropertyCase{"AllGroupsSlide", With([](HarnessOptions& o) { o.group_windows = {24}, o.num_blocks = 12; }),
                         true},
            PropertyCase{"AllGroupsSlideBlockSize2", With([](HarnessOptions& o) {
                           o.group_windows = {24, 5}, o.num_blocks = 45, o.block_size = 2;
                         }),
                         true},
            PropertyCase{"GroupsHostTier", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40, o.num_host_blocks = 24;
                         }),
                         true},
            PropertyCase{"GroupsHostTierRecompute", With([](HarnessOptions& o) {
                           o.group_windows = {0, 2, 40}, o.num_blocks = 50, o.num_host_blocks = 100;
                           o.preemption = PreemptionMode::kRecompute;
                         }),
                         true},
            PropertyCase{"GroupsHostTierSwapNoCache", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40, o.num_host_blocks = 200;
                           o.prefix_caching = false, o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"IntegrityGroupsHostTierSwapBudget7", With([](HarnessOptions& o) {
                           o.group_windows = {0, 24}, o.num_blocks = 40, o.num_host_blocks = 120, o.integrity = true;
                           o.max_num_batched_tokens = 7, o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"AllGroupsSlideHostTier", With([](HarnessOptions& o) {
                           o.group_windows = {24}, o.num_blocks = 12, o.num_host_blocks = 20;
                         }),
                         true},
            PropertyCase{"IntegrityAllGroupsSlideHostTierSwap", With([](HarnessOptions& o) {
                           o.group_windows = {24, 8}, o.num_blocks = 22, o.num_host_blocks = 60, o.integrity = true;
                           o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"Drafts", With([](HarnessOptions& o) { o.max_drafts = 4; })},
            PropertyCase{"DraftsBlockSize1",
                         With([](HarnessOptions& o) { o.max_drafts = 4, o.block_size = 1, o.num_blocks = 2000; })},
            PropertyCase{"DraftsBlockSize32", With([](HarnessOptions& o) { o.max_drafts = 64, o.block_size = 32; })},
            PropertyCase{"DraftsNoCache", With([](HarnessOptions& o) { o.max_drafts = 3, o.prefix_caching = false; })},
            PropertyCase{"DraftsBudget7",
                         With([](HarnessOptions& o) { o.max_drafts = 4, o.max_num_batched_tokens = 7; })},
            PropertyCase{"DraftsTinyPool", With([](HarnessOptions& o) { o.max_drafts = 4, o.num_blocks = 20; }), true},
            PropertyCase{"DraftsIntegrityTinyPoolBlockSize1", With([](HarnessOptions& o) {
                           o.max_drafts = 5, o.num_blocks = 140, o.block_size = 1, o.integrity = true;
                         }),
                         true},
            PropertyCase{"DraftsHostTierSwapNoCache", With([](HarnessOptions& o) {
                           o.max_drafts = 4, o.num_blocks = 20, o.num_host_blocks = 100, o.prefix_caching = false;
                           o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"DraftsIntegrityHostTierSwap", With([](HarnessOptions& o) {
                           o.max_drafts = 4, o.num_blocks = 20, o.num_host_blocks = 60, o.integrity = true;
                           o.preemption = PreemptionMode::kSwap;
                         }),
                         true},
            PropertyCase{"DraftsGroupsTinyPool", With([](HarnessOptions& o) {
                           o.max_drafts = 4, o.group_windows = {0, 24}, o.num_blocks = 40;
                         }),
                         true},
            PropertyCase{"DraftsIntegrityAllGroupsSlide", With([](HarnessOptions& o) {
                           o.max_drafts = 4, o.group_windows = {24, 8}, o.num_blocks = 22, o.integrity = true;
                         }),
                         true},
            PropertyCase{"DraftsTimed", With([](HarnessOptions& o) {
                           o.max_drafts = 4, o.itl_target = absl::Milliseconds(9), o.seconds_per_prefill_token = 1e-3;
                         })},
            // A newcomer may get its copies in a plan that it does not stand in.
            PropertyCase{"Timed", With([](HarnessOptions& o) {
                           o.itl_target = absl::Milliseconds(9), o.seconds_per_prefill_token = 1e-3;
                         })},
            PropertyCase{"TimedGroups", With([](HarnessOptions& o) {
                           o.itl_target = absl::Milliseconds(9), o.seconds_per_prefill_token = 1e-3;
                           o.group_windows = {0, 24}, o.num_blocks = 60;
                         })},
            PropertyCase{"OneBitKeys", With([](HarnessOptions& o) { o.chain_hash = &OneBitHash; })},
            PropertyCase{"OneBitKeysTinyPool",
                         With([](HarnessOptions& o) { o.chain_hash = &OneBitHash, o.num_blocks = 20; }), true}),
        ::testing::Values(Overlap::kNone, Overlap::kTwoPlans)),
    CaseName);

}  // namespace
}  // namespace quire
