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

  // Records from now on what options.schedule_trace_path asks for, if it does, and looks whether schedule_trace_dir is
  // there. Errors as of TraceFile and EngineTrace. To be called before Start.
  absl::Status StartTrace();

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
  absl::StatusOr<std::shared_ptr<TraceFile>> CreateTraceFile(const std::string& name, int64_t max_bytes) override;
  absl::Status StartScheduleTrace(std::shared_ptr<TraceFile> file, absl::Duration max_wait) override;
  absl::Status StopScheduleTrace() override;
  ScheduleTraceStatus GetScheduleTrace() override;
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

  // What starts anew with a trace.
  struct Core {
    Core(const EngineImpl& engine, bool traced);

    const BlockManagerOptions blocks_options;
    BlockManager blocks;
    TenantQuotas quotas;
    Scheduler scheduler;
    std::vector<StepSlot> slots;  // step s has slot s % size
  };

  // --- engine thread
  void Run();
  void Apply(EngineMessages& messages);
  void RunTasks(std::vector<std::function<void()>> tasks);
  void RunWatchers();
  bool IsBusy() const { return core_->scheduler.HasWork() || core_->scheduler.num_in_flight() > 0; }
  absl::Time NextWake() const;
  void Step();
  bool BeginStep();
  void FinishStep();
  void FinishSteps();
  void ReportDeviceFailure();
  void NoteStepBegins();
  absl::Status WaitForStep(const StepSlot& slot);
  void AddStep(double scheduling, double total, int32_t num_tokens);
  void Publish();
  void Finish();
  void CheckWhenIdle();
  // engine_impl_trace.cc
  absl::Status RecordIn(std::shared_ptr<TraceFile> file, Core& core);
  void AdvanceTrace();
  void NoteTrace();

  const EngineOptions options_;
  const EngineInfo info_;
  const absl::Duration step_timeout_;
  const EngineClock clock_;
  EngineInbox inbox_;
  EngineOutputs outputs_;

  // Of the engine thread.
  const std::unique_ptr<ModelRunner> runner_;
  const SchedulerOptions scheduler_options_;
  const SequenceLimits limits_;
  std::shared_ptr<Core> core_;          // exchanged under core_mutex_, which others take to read it
  std::unique_ptr<EngineTrace> trace_;  // null: there was none. Observes what is in core_
  // Of the trace that is to begin (null: none is), and until when it may.
  std::shared_ptr<TraceFile> pending_trace_ = nullptr;
  absl::Time pending_until_ = {};
  std::string pending_problem_;  // why the latest one never began, unless another was asked for since
  bool trace_end_told_ = false;
  bool device_failure_told_ = false;
  EngineMessages messages_;
  std::vector<std::function<bool()>> watchers_;
  StepResult result_;
  std::vector<uint64_t> finished_;
  EngineStats running_stats_;
  EngineStats earlier_;  // counters of cores before this one

  // When the latest step was done, and committed.
  absl::Duration last_done_ = -absl::InfiniteDuration(), last_committed_ = -absl::InfiniteDuration();

  // When the earliest step in flight began, in nanoseconds of clock_.steady; kNoStep between steps.
  static constexpr int64_t kNoStep = -1;
  std::atomic<int64_t> step_began_ns_ = kNoStep;

  std::mutex core_mutex_;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;  // guarded by stats_mutex_: as of the latest step

  std::mutex thread_mutex_;
  std::thread thread_;    // guarded by thread_mutex_
  bool stopped_ = false;  // guarded by thread_mutex_
};

}  // namespace quire
