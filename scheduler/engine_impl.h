#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "block_manager/block_manager.h"
#include "model/model_runner.h"
#include "scheduler/batch_builder.h"
#include "scheduler/engine.h"
#include "scheduler/engine_inbox.h"
#include "scheduler/engine_outputs.h"
#include "scheduler/engine_with_runner.h"
#include "scheduler/scheduler.h"

namespace quire {

// The engine loop (engine.h): take messages, schedule, run, commit, publish; wait for messages when nothing is to do.
//
// Ownership: everything under "engine thread" belongs to that thread from Start until the inbox is closed. The rest is
// made for many threads. A step is run to its end before messages are taken, so blocks of an aborted request are never
// released while a step reads them, and at most one more plan contains it.
class EngineImpl : public Engine {
 public:
  // `options` and `info` are consistent with each other and with the runner.
  EngineImpl(const EngineOptions& options, EngineInfo info, std::unique_ptr<ModelRunner> runner, EngineClock clock);
  ~EngineImpl() override;

  void Start() override;
  absl::Status Submit(EngineRequest request) override;
  void Abort(uint64_t handle) override;
  void AbortSequence(uint64_t handle, int32_t sequence_index) override;
  void SetHeld(uint64_t handle, bool held) override;
  void BeginDrain() override;
  bool WaitIdle(absl::Time deadline) override;
  void Stop() override;
  StepOutputQueue& outputs(int32_t shard) override;
  const EngineInfo& info() const override { return info_; }
  EngineStats GetStats() const override;
  bool IsHealthy() const override;
  absl::Status Post(Task task) override;
  absl::Status CheckInvariants() override;

 private:
  // --- engine thread
  void Run();
  void Apply(EngineMessages& messages);
  void RunTasks(absl::Span<const std::function<void()>> tasks);
  void Step();
  absl::Status RunBatch(const ForwardBatch& batch);
  void AddStepSeconds(double scheduling, double total);
  void Publish();
  void Finish();
  void CheckWhenIdle();

  const EngineInfo info_;
  const absl::Duration step_timeout_;
  const EngineClock clock_;
  EngineInbox inbox_;
  EngineOutputs outputs_;

  // Of the engine thread.
  const std::unique_ptr<ModelRunner> runner_;
  BlockManager blocks_;
  Scheduler scheduler_;
  BatchBuilder builder_;
  EngineMessages messages_;
  SchedulePlan plan_;
  StepResult result_;
  std::vector<uint64_t> finished_;
  EngineStats running_stats_;

  // When the step in flight began, in nanoseconds of clock_.steady; kNoStep between steps.
  static constexpr int64_t kNoStep = -1;
  std::atomic<int64_t> step_began_ns_ = kNoStep;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;  // guarded by stats_mutex_: as of the latest step

  std::mutex thread_mutex_;
  std::thread thread_;    // guarded by thread_mutex_
  bool stopped_ = false;  // guarded by thread_mutex_
};

}  // namespace quire
