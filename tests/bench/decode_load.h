#pragma once

#include <cstdint>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"

namespace quire {

// A scheduler whose sequences all decode, with a model that always answers 1: what the benchmarks of the scheduler and
// the count of its instructions step. No clock, nothing random.
class DecodeLoad {
 public:
  struct Options {
    int32_t running = 0;         // sequences, each with a prompt of its own
    int32_t num_blocks = 0;      // of 16 tokens; with room for prompt + 32 tokens of each sequence
    int32_t prompt_len = 3;      // tokens
    bool prefix_caching = true;  // every full block is published
  };

  explicit DecodeLoad(const Options& options);

  // Steps until the sequences have filled the pool.
  int32_t steps_left() const { return max_steps_ - steps_; }
  // Ends all sequences and starts as many others, which decode when this returns.
  void Restart();

  // The halves of a step. REQUIRES: in turn, and steps_left() > 0.
  void Schedule();
  void Commit();

  const SchedulePlan& plan() const { return plan_; }
  int64_t preemptions() const { return scheduler_.stats().preemptions; }

 private:
  static constexpr int32_t kBlockSize = 16, kWarmUp = 4;

  const Options options_;
  BlockManager blocks_;
  Scheduler scheduler_;
  SchedulePlan plan_;
  StepResult result_;
  StepOutputs outputs_;
  const int32_t max_steps_;
  int32_t steps_ = 0;
  uint64_t num_requests_ = 0;
};

}  // namespace quire
