#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "scheduler/scheduler.h"
#include "tests/testing/fake_runner.h"
#include "tests/testing/recorded_run.h"

namespace quire {

// A prompt of `n` ids; those of different seeds differ from the first on.
std::vector<int32_t> Ids(int32_t n, int32_t seed = 1);

// `max_tokens` tokens for each of `n` sequences, with the log-probability of each; no eos ends them.
SamplingParams Tokens(int32_t max_tokens, int32_t n = 1);

struct HarnessOptions {
  int32_t num_blocks = 200;  // the null block included
  int32_t block_size = 8;
  bool prefix_caching = true;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;
  int32_t max_model_len = 128;
  std::vector<int32_t> eos_ids = {7};
  EvictionPolicy eviction = EvictionPolicy::kCost;
  int32_t max_plans_in_flight = 1;
  bool eager_runner = false;  // steps are executed when they are submitted, not when they are waited for
  int32_t num_host_blocks = 0;
  std::vector<int32_t> group_windows = {};  // layer groups; both numbers of blocks count pages then
  PreemptionMode preemption = PreemptionMode::kAuto;
  absl::Duration itl_target = absl::InfiniteDuration();
  double seconds_per_prefill_token = 0;  // what steps are said to take; 0: not measured
  bool append_forced_tokens = true;
  int32_t max_drafts = 0;  // 0: no speculation
  bool integrity = false;  // the runner checks that nothing findable or found ever changes, and poisons what is freed
  bool record = kRecordByDefault;
  BlockHash (*chain_hash)(const BlockHash& parent, absl::Span<const int32_t> tokens) = &ChainHash;
};

// What a client would have seen of one request.
struct SeenRequest {
  EngineRequest request;
  std::vector<std::vector<int32_t>> ids;     // by sequence
  std::vector<SequenceOutput> final_events;  // by sequence; finish_reason kNone: not ended
  std::vector<float> scores;                 // positions 1 onward
  bool finished = false;
  SequenceOutput last_event;
};

// Block manager, scheduler and fake runner, stepped by the test. Checks after every call that all invariants hold
// (under sanitizers, which look at the code between, after every eighth), that events come in legal order, and at the
// end that a replay of the record makes the same plans. Time is the number of seconds in `now`.
class SchedulerHarness {
 public:
  explicit SchedulerHarness(const HarnessOptions& options);

  // Adds a request made of these; fails the test if it is refused. Returns its handle.
  uint64_t Add(std::vector<int32_t> prompt, SamplingParams params, int32_t priority = 0,
               absl::Time deadline = absl::InfiniteFuture());
  // The same for a request that lacks nothing but handle and arrival.
  uint64_t Add(EngineRequest request);
  // How those that are added from now on are treated.
  bool reads_cache = true, writes_cache = true;
  ForkOrigin fork_of;                                 // likewise
  std::shared_ptr<const TokenConstraint> constraint;  // likewise

  // Schedule, run, commit; with overlap the plan before is committed, if there is one. False if the plan was empty and
  // nothing was in flight.
  bool Step();
  bool Schedule();  // the halves of Step; false if the plan was empty
  void Commit();    // the earliest plan in flight
  void FailStep(const absl::Status& status);
  void Drain();  // commits what is in flight
  bool MaySchedule() const { return scheduler.num_in_flight() < options.max_plans_in_flight; }
  const SchedulePlan& earliest_plan() const { return scheduler.num_in_flight() == 2 ? plan_before : plan; }
  void Abort(uint64_t handle);
  void AbortSequence(uint64_t handle, int32_t index);

  // Steps until no work is left; fails the test after `max_steps`.
  void RunAll(int32_t max_steps);

  // Fails the test unless the request ended by itself with exactly the tokens, reasons and scores it must have.
  void ExpectCorrect(uint64_t handle) const;
  // The same for what a request has given so far, however it ended.
  void ExpectCorrectSoFar(uint64_t handle) const;
  // Fails the test unless no request lives and each block is free or cached.
  void ExpectIdle() const;

  const SeenRequest& seen(uint64_t handle) const { return seen_.at(handle); }
  const std::map<uint64_t, SeenRequest>& all_seen() const { return seen_; }

  const HarnessOptions options;
  BlockManager blocks;
  Scheduler scheduler;
  FakeRunner runner;
  SchedulePlan plan;         // the latest
  SchedulePlan plan_before;  // with two in flight
  StepResult result;
  StepOutputs outputs;
  absl::Time now = absl::UnixEpoch();
  KeyContext context;
  std::optional<RecordedRun> record;

 private:
  void CheckInvariants();
  void Collect();

  int64_t num_calls_ = 0;
  std::map<uint64_t, SeenRequest> seen_;
  uint64_t next_handle_ = 1;
};

}  // namespace quire
