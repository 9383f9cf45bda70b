// The schedule traces of the engine: one with the process, and others while it runs.
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "scheduler/engine_impl.h"

namespace quire {

absl::Status EngineImpl::StartTrace() {
  if (!options_.schedule_trace_dir.empty()) {
    QUIRE_RETURN_IF_ERROR(TraceFile::CheckDirectory(options_.schedule_trace_dir));
  }
  if (options_.schedule_trace_path.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<TraceFile> file,
                         TraceFile::Overwrite(options_.schedule_trace_path, options_.schedule_trace_max_bytes));
  return RecordIn(std::move(file), *core_);
}

absl::StatusOr<std::shared_ptr<TraceFile>> EngineImpl::CreateTraceFile(const std::string& name, int64_t max_bytes) {
  if (options_.schedule_trace_dir.empty()) {
    return absl::FailedPreconditionError(
        "no directory is given for schedule traces: start quired with --schedule-trace-dir");
  }
  const int64_t limit = options_.schedule_trace_max_bytes;
  if (max_bytes == 0) max_bytes = limit;
  if (max_bytes < 4096 || max_bytes > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_bytes: ", max_bytes, " is out of range; must be in [4096, ", limit, "], 0 for the latter"));
  }
  return TraceFile::Create(options_.schedule_trace_dir, name, max_bytes);
}

absl::Status EngineImpl::StartScheduleTrace(std::shared_ptr<TraceFile> file, absl::Duration max_wait) {
  if (pending_trace_ != nullptr) return absl::FailedPreconditionError("a schedule trace is about to begin already");
  if (trace_ != nullptr && !trace_->ended())
    return absl::FailedPreconditionError("a schedule trace is recorded already; stop it first");
  if (trace_ != nullptr && !trace_->written())
    return absl::FailedPreconditionError("the schedule trace before is still being written");
  pending_trace_ = std::move(file);
  pending_until_ = clock_.now() + max_wait;
  pending_problem_.clear();
  return absl::OkStatus();
}

absl::Status EngineImpl::StopScheduleTrace() {
  if (std::exchange(pending_trace_, nullptr) != nullptr) {
    pending_problem_ = "it was stopped before it began";
    return absl::OkStatus();
  }
  if (trace_ == nullptr) return absl::FailedPreconditionError("no schedule trace is recorded");
  trace_->End();
  return absl::OkStatus();
}

ScheduleTraceStatus EngineImpl::GetScheduleTrace() {
  ScheduleTraceStatus status;
  if (pending_trace_ != nullptr) {
    status.state = ScheduleTraceStatus::State::kPending;
    status.file = pending_trace_->path();
  } else if (!pending_problem_.empty()) {
    status.problem = pending_problem_;
  } else if (trace_ != nullptr) {
    status = trace_->status();
  }
  return status;
}

absl::Status EngineImpl::RecordIn(std::shared_ptr<TraceFile> file, Core& core) {
  QUIRE_ASSIGN_OR_RETURN(trace_, EngineTrace::Start(std::move(file), {scheduler_options_, limits_, core.blocks_options},
                                                    &core.blocks, &core.scheduler));
  trace_end_told_ = false;
  return absl::OkStatus();
}

// Begins the trace that is pending if no request lives, or gives it up.
void EngineImpl::AdvanceTrace() {
  if (pending_trace_ == nullptr) return;
  if (IsBusy() || core_->scheduler.stats().requests_held > 0) {
    if (clock_.now() < pending_until_) return;
    pending_trace_ = nullptr;
    pending_problem_ = "it did not begin: all the time requests were queued, running or held";
    return;
  }
  auto core = std::make_shared<Core>(*this, /*traced=*/true);
  if (absl::Status status = RecordIn(std::exchange(pending_trace_, nullptr), *core); !status.ok()) {
    pending_problem_ = std::string(status.message());
    return;
  }
  core->blocks.ContinueEvents(core_->blocks);
  earlier_ = running_stats_;
  {
    std::lock_guard lock(core_mutex_);
    core_.swap(core);
  }
  Publish();
}

// Its figures, and once why it has ended.
void EngineImpl::NoteTrace() {
  if (trace_ == nullptr) return;
  running_stats_.trace_bytes = trace_->num_bytes();
  running_stats_.trace_records_lost = trace_->num_lost();
  if (trace_end_told_) return;
  const std::string problem = trace_->problem();
  trace_end_told_ = !problem.empty();
  if (trace_end_told_ && options_.on_schedule_trace_end != nullptr) options_.on_schedule_trace_end(problem);
}

}  // namespace quire
