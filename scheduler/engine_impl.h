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
#include "scheduler/engine_tenant_quotas.h"
#include "scheduler/engine_trace.h"
#include "scheduler/engine_with_runner.h"
#include "scheduler/scheduler.h"

namespace quire {

// The engine loop (engine.h): take messages, schedule, run, commit, publish; wait for messages when nothing is to do.
// If the runner takes two steps, the next one is scheduled and submitted before one is waited for.
//
// Ownership: everything under "engine thread" belongs to that thread from Start until the inbox is closed. The rest is
// made for many threads. Messages are taken between steps, so at most as many more plans contain an aborted request as
// steps may be in flight.
class EngineImpl : public Engine {
 public:
  // `options` and `info` are consistent with each other and with the runner.
  EngineImpl(const EngineOptions& options, EngineInfo info, std::unique_ptr<ModelRunner> runner, EngineClock clock);
  ~EngineImpl() override;

  // Records from now on what options.schedule_trace_path asks for, if it does. Errors as EngineTrace::Start. To be
  // called before Start.
  absl::Status StartTrace(const EngineOptions& options);

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
  absl::Status Watch(Watcher watcher) override;
  ScheduleTraceStatus ScheduleTrace(bool stop) override;
  absl::Status CheckInvariants() override;

 private:
  // A step in flight.
  struct StepSlot {
    SchedulePlan plan = {};
    BatchBuilder builder;
    absl::Status submitted = {};  // what Submit said
    absl::Duration began = {};    // by MonotonicNow
    double scheduling = 0;        // seconds
  };

  // --- engine thread
  void Run();
  void Apply(EngineMessages& messages);
  void RunTasks(std::vector<std::function<void()>> tasks);
  void RunWatchers();
  bool IsBusy() const { return scheduler_.HasWork() || scheduler_.num_in_flight() > 0; }
  void Step();
  bool BeginStep();
  void FinishStep();
  void FinishSteps();
  void NoteStepBegins();
  absl::Status WaitForStep(const StepSlot& slot);
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
  const BlockManagerOptions blocks_options_;
  const SchedulerOptions scheduler_options_;
  const SequenceLimits limits_;
  BlockManager blocks_;
  TenantQuotas quotas_;
  Scheduler scheduler_;
  std::unique_ptr<EngineTrace> trace_;  // null: none
  std::vector<StepSlot> slots_;         // step s has slot s % size
  EngineMessages messages_;
  std::vector<std::function<bool()>> watchers_;
  StepResult result_;
  std::vector<uint64_t> finished_;
  EngineStats running_stats_;

  // When the latest step was done, and committed.
  absl::Duration last_done_ = -absl::InfiniteDuration(), last_committed_ = -absl::InfiniteDuration();

  // When the earliest step in flight began, in nanoseconds of clock_.steady; kNoStep between steps.
  static constexpr int64_t kNoStep = -1;
  std::atomic<int64_t> step_began_ns_ = kNoStep;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;  // guarded by stats_mutex_: as of the latest step

  std::mutex thread_mutex_;
  std::thread thread_;    // guarded by thread_mutex_
  bool stopped_ = false;  // guarded by thread_mutex_
};

}  // namespace quire
