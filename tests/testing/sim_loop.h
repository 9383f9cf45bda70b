#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/testing/recorded_run.h"

namespace quire {

// What a simulated step takes, in seconds: the truth that the step-time model has to find.
struct StepCost {
  double step = 4e-3, prefill_token = 20e-6, prefill_pair = 2e-9, decode_row = 100e-6, decode_kv = 50e-9;

  double Of(const StepLoad& load) const {
    return step + prefill_token * static_cast<double>(load.prefill_tokens) +
           prefill_pair * static_cast<double>(load.prefill_pairs) + decode_row * static_cast<double>(load.decode_rows) +
           decode_kv * static_cast<double>(load.decode_kv);
  }
};

struct SimLoopOptions {
  SchedulerOptions scheduler = {};
  int32_t num_blocks = 8192, block_size = 16, max_model_len = 8192;
  StepCost cost = {};
  double noise = 0;  // relative, standard deviation of each step's time
  uint32_t seed = 1;
  bool record = kRecordByDefault;
};

// A request as a test describes it. Token ids never end it unless `may_end` is set.
struct SimRequest {
  int32_t prompt_len = 32, max_tokens = 32;
  int32_t prompt_seed = -1;  // equal ones have equal prompts, as far as they reach; -1: one of its own
  int32_t priority = 0;
  std::string tenant = {};
  bool offline = false;
  absl::Duration deadline = absl::InfiniteDuration();  // from arrival
  absl::Duration ttft_target = absl::InfiniteDuration(), tpot_target = absl::InfiniteDuration();
};

// What became of it. Times are those of the simulated clock.
struct SimSeen {
  SimRequest request;
  absl::Time arrival, first_token = absl::InfiniteFuture(), end = absl::InfiniteFuture();
  int32_t tokens = 0;
  SequenceOutput last_event;  // once ended
  bool finished() const { return end != absl::InfiniteFuture(); }
  bool complete() const { return finished() && last_event.finish_reason == FinishReason::kLength; }
};

// What a request got in the latest step.
struct SimPart {
  uint64_t handle = 0;
  int32_t num_tokens = 0;
};

// Scheduler and block manager in simulated time: steps take what StepCost says, every token is 1.
class SimLoop {
 public:
  explicit SimLoop(const SimLoopOptions& options);

  uint64_t Add(const SimRequest& request);
  // One step; its seconds, 0 if the plan was empty. Checks the plan's token limit.
  double Step();
  // Steps until nothing is left; fails the test after `max_steps`.
  void RunAll(int32_t max_steps);

  const SimSeen& seen(uint64_t handle) const { return seen_.at(handle); }
  const std::map<uint64_t, SimSeen>& all_seen() const { return seen_; }
  const std::vector<SimPart>& parts() const { return parts_; }  // of the latest step
  const SimPart* PartOf(uint64_t handle) const;                 // null: none

  const SimLoopOptions options;
  BlockManager blocks;
  Scheduler scheduler;
  std::optional<RecordedRun> record;
  SchedulePlan plan;
  StepOutputs outputs;
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);

 private:
  void Collect();

  StepResult result_;
  std::mt19937 random_;
  std::map<uint64_t, SimSeen> seen_;
  std::vector<SimPart> parts_;
  uint64_t num_requests_ = 0;
};

}  // namespace quire
