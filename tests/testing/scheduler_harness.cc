#include "tests/testing/scheduler_harness.h"

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "scheduler/token_constraints.h"
#include "tests/testing/sanitized.h"

namespace quire {

std::vector<int32_t> Ids(int32_t n, int32_t seed) {
  std::vector<int32_t> ids(n);
  for (int32_t i = 0; i < n; ++i) ids[i] = (i * 7 + seed * 13) % FakeRunner::kVocabSize;
  return ids;
}

SamplingParams Tokens(int32_t max_tokens, int32_t n) {
  SamplingParams params;
  params.max_tokens = max_tokens;
  params.n = n;
  params.ignore_eos = true;
  params.logprobs = 0;
  return params;
}

namespace {

BlockManagerOptions BlocksOf(const HarnessOptions& options) {
  // Where all groups slide, blocks outnumber pages.
  const std::vector<int32_t>& windows = options.group_windows;
  const bool all_slide = std::count(windows.begin(), windows.end(), 0) == 0 && !windows.empty();
  const int32_t blocks_per_page = all_slide ? 4 : 1;
  const BlockManagerOptions blocks = {.num_blocks = options.num_blocks * blocks_per_page,
                                      .block_size = options.block_size,
                                      .enable_prefix_cache = options.prefix_caching,
                                      .eviction = {.policy = options.eviction},
                                      .integrity = options.integrity,
                                      .group_windows = windows,
                                      .num_pages = windows.empty() ? 0 : options.num_blocks,
                                      .num_host_blocks = options.num_host_blocks * blocks_per_page,
                                      .num_host_pages = windows.empty() ? 0 : options.num_host_blocks,
                                      .chain_hash = options.chain_hash};
  return options.record ? Recordable(blocks) : blocks;
}

SchedulerOptions SchedulerOf(const HarnessOptions& options) {
  return {.max_num_seqs = options.max_num_seqs,
          .max_num_batched_tokens = options.max_num_batched_tokens,
          .max_plans_in_flight = options.max_plans_in_flight,
          .enable_prefix_caching = options.prefix_caching,
          .speculation = options.max_drafts > 0 ? SpeculationMode::kNgram : SpeculationMode::kOff,
          .max_drafts = std::max(1, options.max_drafts),
          .preemption = options.preemption,
          .itl_target = options.itl_target};
}

SequenceLimits LimitsOf(const HarnessOptions& options) {
  return {.max_model_len = options.max_model_len, .eos_token_ids = options.eos_ids};
}

}  // namespace

SchedulerHarness::SchedulerHarness(const HarnessOptions& harness_options)
    : options(harness_options),
      blocks(BlocksOf(options)),
      scheduler(SchedulerOf(options), LimitsOf(options), &blocks),
      runner(&blocks, options.num_blocks + options.num_host_blocks) {
  if (options.record) record.emplace(SchedulerOf(options), LimitsOf(options), BlocksOf(options), &blocks, &scheduler);
  runner.eager = options.eager_runner;
}

uint64_t SchedulerHarness::Add(std::vector<int32_t> prompt, SamplingParams params, int32_t priority,
                               absl::Time deadline) {
  EngineRequest request = MakeEngineRequest(std::move(prompt), std::move(params), options.block_size, context);
  if (options.chain_hash != &ChainHash) {
    BlockHash parent = request.root_hash;
    for (size_t i = 0; i < request.prompt_hashes.size(); ++i) {
      const absl::Span<const int32_t> ids(request.prompt_ids);
      parent = request.prompt_hashes[i] =
          options.chain_hash(parent, ids.subspan(i * options.block_size, options.block_size));
    }
  }
  request.fork_of = fork_of;
  request.constraint = constraint;
  request.is_constrained = constraint != nullptr;
  request.reads_cache = reads_cache;
  request.writes_cache = writes_cache;
  request.priority = priority;
  request.deadline = deadline;
  return Add(std::move(request));
}

uint64_t SchedulerHarness::Add(EngineRequest request) {
  request.handle = next_handle_++;
  request.arrival = now;
  SeenRequest seen;
  seen.request = request;
  seen.ids.resize(request.params.n);
  seen.final_events.resize(request.params.n);
  seen_.emplace(request.handle, std::move(seen));
  const uint64_t handle = request.handle;
  EXPECT_EQ(scheduler.Add(std::move(request)), absl::OkStatus());
  return handle;
}

bool SchedulerHarness::Schedule() {
  const bool overlaps = scheduler.num_in_flight() == 1;
  if (overlaps) std::swap(plan, plan_before);
  scheduler.Schedule(now, &plan, &outputs);
  CheckInvariants();
  Collect();
  if (plan.empty()) {
    if (overlaps) std::swap(plan, plan_before);
    return false;
  }
  EXPECT_LE(plan.num_tokens, options.max_num_batched_tokens);
  EXPECT_LE(static_cast<int32_t>(plan.sequences.size() + plan.riders.size()), options.max_num_seqs);
  FillMasks(&plan);
  runner.Submit(plan);
  return true;
}

void SchedulerHarness::Commit() {
  runner.Wait(&result);
  AdvanceConstraints(earliest_plan(), options.append_forced_tokens, &result);
  const StepLoad& load = earliest_plan().load;
  const double prefill_seconds = options.seconds_per_prefill_token * static_cast<double>(load.prefill_tokens);
  const double step_seconds = options.seconds_per_prefill_token > 0 ? 1e-3 + prefill_seconds : 0;
  scheduler.Commit(earliest_plan(), result, now, &outputs, step_seconds);
  CheckInvariants();
  Collect();
  now += absl::Seconds(1);
}

bool SchedulerHarness::Step() {
  const bool made = MaySchedule() && Schedule();
  if (scheduler.num_in_flight() == 0) return false;
  if (!made || !MaySchedule()) Commit();
  return true;
}

void SchedulerHarness::FailStep(const absl::Status& status) {
  runner.Lose();
  scheduler.FailStep(earliest_plan(), status, now, &outputs);
  CheckInvariants();
  Collect();
}

void SchedulerHarness::Drain() {
  while (scheduler.num_in_flight() > 0) Commit();
}

void SchedulerHarness::Abort(uint64_t handle) {
  scheduler.Abort(handle, now, &outputs);
  CheckInvariants();
  Collect();
}

void SchedulerHarness::AbortSequence(uint64_t handle, int32_t index) {
  scheduler.AbortSequence(handle, index, now, &outputs);
  CheckInvariants();
  Collect();
}

void SchedulerHarness::RunAll(int32_t max_steps) {
  for (int32_t step = 0; scheduler.HasWork(); ++step) {
    ASSERT_LT(step, max_steps) << "no end in sight";
    Step();
    if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
  }
  Drain();
}

void SchedulerHarness::CheckInvariants() {
  if (testing::kSanitized && ++num_calls_ % 8 != 0) return;
  EXPECT_EQ(scheduler.CheckInvariants(), absl::OkStatus());
}

void SchedulerHarness::Collect() {
  for (const PromptScoreOutput& score : outputs.prompt_scores) {
    SeenRequest& seen = seen_.at(score.handle);
    EXPECT_EQ(score.position, static_cast<int32_t>(seen.scores.size()) + 1);
    ASSERT_EQ(score.logprobs_count, 1);
    EXPECT_EQ(outputs.logprobs[score.logprobs_begin].token_id, seen.request.prompt_ids[score.position]);
    seen.scores.push_back(outputs.logprobs[score.logprobs_begin].logprob);
    EXPECT_TRUE(seen.ids[0].empty()) << "scores come before tokens";
  }
  for (const SequenceOutput& event : outputs.sequences) {
    SeenRequest& seen = seen_.at(event.handle);
    EXPECT_FALSE(seen.finished) << "an event after the last one";
    EXPECT_EQ(seen.final_events[event.sequence_index].finish_reason, FinishReason::kNone);
    if (event.token_id >= 0) {
      seen.ids[event.sequence_index].push_back(event.token_id);
      const bool forced = event.logprobs_count == 0 && seen.request.is_constrained && !seen.request.params.logprobs;
      if (!forced) {
        ASSERT_EQ(event.logprobs_count, 1);
        EXPECT_EQ(outputs.logprobs[event.logprobs_begin].token_id, event.token_id);
      }
      EXPECT_GT(event.first_step, 0);
      EXPECT_GE(event.last_step, event.first_step);
    }
    if (event.finish_reason != FinishReason::kNone) seen.final_events[event.sequence_index] = event;
    seen.last_event = event;
    seen.finished = event.request_finished;
    EXPECT_LT(event.cached_tokens, static_cast<int32_t>(seen.request.prompt_ids.size()));
  }
  outputs.prompt_scores.clear();
  outputs.sequences.clear();
  outputs.logprobs.clear();
}

void SchedulerHarness::ExpectCorrect(uint64_t handle) const {
  SCOPED_TRACE(::testing::Message() << "request " << handle);
  const SeenRequest& seen = seen_.at(handle);
  EXPECT_TRUE(seen.finished);
  const auto all_expected = FakeRunner::ExpectedOutputs(seen.request, options.max_model_len, options.eos_ids);
  for (int32_t i = 0; i < seen.request.params.n; ++i) {
    SCOPED_TRACE(::testing::Message() << "sequence " << i);
    const std::vector<int32_t>& expected = all_expected.at(i);
    EXPECT_EQ(seen.ids[i], expected);
    const SequenceOutput& last = seen.final_events[i];
    EXPECT_TRUE(last.finish_reason == FinishReason::kStop || last.finish_reason == FinishReason::kLength);
    if (last.finish_reason == FinishReason::kStop && (last.stop_token_id >= 0 || !seen.request.is_constrained)) {
      EXPECT_EQ(last.stop_token_id, expected.back());
    }
  }
  if (seen.request.params.prompt_logprobs.has_value()) {
    EXPECT_EQ(seen.scores, FakeRunner::ExpectedScores(seen.request.prompt_ids));
    EXPECT_EQ(seen.last_event.cached_tokens, 0);
  } else {
    EXPECT_TRUE(seen.scores.empty());
  }
}

void SchedulerHarness::ExpectCorrectSoFar(uint64_t handle) const {
  const SeenRequest& seen = seen_.at(handle);
  auto all_expected = FakeRunner::ExpectedOutputs(seen.request, options.max_model_len, options.eos_ids);
  for (int32_t i = 0; i < seen.request.params.n; ++i) {
    std::vector<int32_t>& expected = all_expected.at(i);
    ASSERT_LE(seen.ids[i].size(), expected.size());
    expected.resize(seen.ids[i].size());
    EXPECT_EQ(seen.ids[i], expected);
  }
}

void SchedulerHarness::ExpectIdle() const {
  EXPECT_FALSE(scheduler.HasWork());
  const BlockStats stats = blocks.stats();
  EXPECT_EQ(stats.active, 0);
  EXPECT_EQ(stats.free + stats.cached, stats.total);
  EXPECT_EQ(scheduler.stats().requests_running, 0);
  EXPECT_EQ(scheduler.stats().requests_waiting, 0);
  EXPECT_EQ(scheduler.stats().waiting_prompt_tokens, 0);
  EXPECT_EQ(scheduler.CheckInvariants(), absl::OkStatus());
}

}  // namespace quire
