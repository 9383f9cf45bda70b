#include "scheduler/engine_impl.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <latch>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

absl::Duration MonotonicNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

EngineClock WithDefaults(EngineClock clock) {
  if (clock.steady == nullptr) clock.steady = &MonotonicNow;
  return clock;
}

BlockManagerOptions BlockOptions(const EngineOptions& options, const EngineInfo& info,
                                 const std::vector<int32_t>& group_windows) {
  BlockManagerOptions blocks;
  blocks.num_blocks = info.num_kv_blocks + 1;
  blocks.block_size = info.block_size;
  blocks.integrity = options.kv_integrity;
  if (!options.schedule_trace_path.empty()) blocks.token_order = DrawTokenPermutation(info.config.vocab_size);
  blocks.num_host_blocks = info.num_host_blocks;
  blocks.enable_prefix_cache = options.scheduler.enable_prefix_caching;
  blocks.eviction = options.eviction;
  blocks.num_events = info.num_kv_events;
  if (group_windows == std::vector<int32_t>{0}) return blocks;
  blocks.group_windows = group_windows;
  blocks.num_pages = blocks.num_blocks;
  // Where every group slides, blocks outnumber pages: those of a sequence that have slid out, and those that lead to
  // what can still be found.
  if (std::find(group_windows.begin(), group_windows.end(), 0) == group_windows.end()) {
    constexpr int64_t kBlocksPerPage = 8;
    const int64_t longest = (int64_t{info.max_model_len} + info.block_size - 1) / info.block_size;
    const int64_t wanted = blocks.num_pages + std::max(longest, (kBlocksPerPage - 1) * blocks.num_pages);
    blocks.num_blocks = static_cast<int32_t>(
        std::min<int64_t>(wanted, INT32_MAX / info.block_size / static_cast<int64_t>(group_windows.size())));
  }
  return blocks;
}

WaitingWork QueueOf(const SchedulerStats& stats) {
  return {.requests = stats.requests_waiting,
          .tokens = stats.waiting_prompt_tokens,
          .starts_per_second = stats.starts_per_second,
          .start_tokens_per_second = stats.start_tokens_per_second};
}

SchedulerOptions WithOverlap(SchedulerOptions options, const ModelRunner& runner) {
  options.max_plans_in_flight = std::clamp(runner.max_steps_in_flight(), 1, 2);
  return options;
}

}  // namespace

EngineImpl::EngineImpl(const EngineOptions& options, EngineInfo info, std::unique_ptr<ModelRunner> runner,
                       EngineClock clock)
    : info_(std::move(info)),
      step_timeout_(options.step_timeout),
      clock_(WithDefaults(std::move(clock))),
      inbox_({options.max_queued_requests, options.max_queued_tokens, options.max_queue_wait}),
      outputs_(options.num_output_shards),
      runner_(std::move(runner)),
      blocks_options_(BlockOptions(options, info_, runner_->group_windows())),
      scheduler_options_(WithOverlap(options.scheduler, *runner_)),
      limits_({.max_model_len = info_.max_model_len, .eos_token_ids = info_.config.eos_token_ids}),
      blocks_(blocks_options_),
      quotas_(options),
      scheduler_(scheduler_options_, limits_, &blocks_),
      slots_(std::clamp(runner_->max_steps_in_flight(), 1, 2),
             {.builder = BatchBuilder(info_.block_size, info_.max_model_len, blocks_.pages())}) {
  Publish();
}

EngineImpl::~EngineImpl() { Stop(); }

absl::Status EngineImpl::StartTrace(const EngineOptions& options) {
  if (options.schedule_trace_path.empty()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(trace_,
                         EngineTrace::Start(options.schedule_trace_path, options.schedule_trace_max_bytes,
                                            {scheduler_options_, limits_, blocks_options_}, &blocks_, &scheduler_));
  return absl::OkStatus();
}

void EngineImpl::Start() {
  std::lock_guard lock(thread_mutex_);
  if (stopped_ || thread_.joinable()) return;
  inbox_.Open();
  thread_ = std::thread(&EngineImpl::Run, this);
}

absl::Status EngineImpl::Submit(EngineRequest request) {
  QUIRE_RETURN_IF_ERROR(scheduler_.CheckRequest(request));
  return inbox_.PostRequest(std::move(request));
}

void EngineImpl::Abort(uint64_t handle) { inbox_.PostAbort(handle, EngineMessages::kWholeRequest); }

void EngineImpl::AbortSequence(uint64_t handle, int32_t sequence_index) {
  if (sequence_index >= 0) inbox_.PostAbort(handle, sequence_index);
}

void EngineImpl::SetHeld(uint64_t handle, bool held) { inbox_.PostHold(handle, held); }

void EngineImpl::BeginDrain() { inbox_.BeginDrain(); }

bool EngineImpl::WaitIdle(absl::Time deadline) { return inbox_.WaitIdle(deadline); }

void EngineImpl::Stop() {
  inbox_.PostStop();
  outputs_.StopWaiting();
  std::lock_guard lock(thread_mutex_);
  if (stopped_) return;
  stopped_ = true;
  if (thread_.joinable()) {
    thread_.join();
  } else {
    // Never started: what was submitted still gets its final events.
    inbox_.Take(absl::InfinitePast(), &messages_);
    Apply(messages_);
    Finish();
  }
}

StepOutputQueue& EngineImpl::outputs(int32_t shard) { return outputs_.ring(shard); }

EngineStats EngineImpl::GetStats() const {
  EngineStats stats;
  {
    std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  stats.requests_waiting = inbox_.queued_requests();
  stats.waiting_prompt_tokens = inbox_.queued_tokens();
  stats.output_queue_waits = outputs_.num_waits();
  stats.healthy = IsHealthy();
  return stats;
}

bool EngineImpl::IsHealthy() const {
  const int64_t began = step_began_ns_.load(std::memory_order_relaxed);
  return began == kNoStep || clock_.steady() - absl::Nanoseconds(began) <= step_timeout_;
}

absl::Status EngineImpl::CheckInvariants() {
  absl::Status answer;
  std::latch done(1);
  const auto check = [&] {
    answer = scheduler_.CheckInvariants();
    done.count_down();
  };
  // Without an engine thread nobody else touches the scheduler.
  if (!inbox_.PostTask(check)) check();
  done.wait();
  return answer;
}

absl::Status EngineImpl::Post(Task task) {
  if (inbox_.PostTask([this, task = std::move(task)] { task(blocks_); })) return absl::OkStatus();
  return absl::UnavailableError("the engine does not run");
}

absl::Status EngineImpl::Watch(Watcher watcher) {
  if (inbox_.PostWatcher([this, watcher = std::move(watcher)] { return watcher(blocks_); })) return absl::OkStatus();
  return absl::UnavailableError("the engine does not run");
}

ScheduleTraceStatus EngineImpl::ScheduleTrace(bool stop) {
  if (trace_ == nullptr) return {};
  if (stop) trace_->Finish();
  return {!trace_->finished(), trace_->num_records(), trace_->num_bytes(), trace_->num_lost()};
}

void EngineImpl::Run() {
  bool was_busy = false;
  while (true) {
    const bool busy = IsBusy();
    if (was_busy && !busy) CheckWhenIdle();
    was_busy = busy;
    inbox_.Take(busy ? absl::InfinitePast() : scheduler_.next_deadline(), &messages_);
    Apply(messages_);
    if (messages_.stop) break;
    if (IsBusy()) {
      Step();
    } else {
      scheduler_.DropExpired(clock_.now(), outputs_.gathered());
    }
    if (!messages_.tasks.empty()) FinishSteps();
    Publish();
    RunTasks(std::move(messages_.tasks));
    RunWatchers();
  }
  Finish();
}

// Takes them: what they hold lives no longer than they run.
void EngineImpl::RunTasks(std::vector<std::function<void()>> tasks) {
  if (tasks.empty()) return;
  blocks_.AdvanceTime(clock_.now());
  for (const std::function<void()>& task : tasks) task();
  Publish();  // of what they have changed
}

void EngineImpl::RunWatchers() {
  for (std::function<bool()>& watcher : messages_.watchers) watchers_.push_back(std::move(watcher));
  messages_.watchers.clear();
  std::erase_if(watchers_, [](const std::function<bool()>& watcher) { return watcher(); });
}

void EngineImpl::Apply(EngineMessages& messages) {
  // The door has checked each request and made sure that its handle is new.
  for (EngineRequest& request : messages.requests) {
    quotas_.Meet(request, blocks_);
    QUIRE_CHECK(scheduler_.Add(std::move(request)).ok());
  }
  if (!messages.holds.empty()) FinishSteps();
  for (const EngineMessages::HoldMessage& hold : messages.holds) scheduler_.SetHeld(hold.handle, hold.held);
  if (messages.aborts.empty()) return;
  const absl::Time now = clock_.now();
  for (const EngineMessages::AbortMessage& abort : messages.aborts) {
    if (abort.sequence_index == EngineMessages::kWholeRequest) {
      scheduler_.Abort(abort.handle, now, outputs_.gathered());
    } else {
      scheduler_.AbortSequence(abort.handle, abort.sequence_index, now, outputs_.gathered());
    }
  }
}

// Adds a step to those in flight, and ends the earliest if there may be no more or there was nothing to add.
void EngineImpl::Step() {
  const bool added = scheduler_.HasWork() && BeginStep();
  if (added && scheduler_.num_in_flight() < static_cast<int32_t>(slots_.size())) return;
  if (scheduler_.num_in_flight() > 0) FinishStep();
}

bool EngineImpl::BeginStep() {
  StepSlot& slot = slots_[(scheduler_.stats().steps + 1) % slots_.size()];
  slot.began = MonotonicNow();
  scheduler_.Schedule(clock_.now(), &slot.plan, outputs_.gathered());
  inbox_.SetWaiting(QueueOf(scheduler_.stats()));
  if (slot.plan.empty()) return false;
  const ForwardBatch& batch = slot.builder.Build(slot.plan);
  slot.scheduling = absl::ToDoubleSeconds(MonotonicNow() - slot.began);
  if (scheduler_.num_in_flight() == 1) NoteStepBegins();
  slot.submitted = runner_->Submit(batch);
  if (!slot.submitted.ok()) FinishSteps();  // the next one could not take tokens from it
  return true;
}

// Steps run one after another: what one takes is counted from the end of the one before.
void EngineImpl::FinishStep() {
  const StepSlot& slot = slots_[(scheduler_.stats().steps - scheduler_.num_in_flight() + 1) % slots_.size()];
  const absl::Status status = WaitForStep(slot);
  const absl::Duration done = MonotonicNow();
  const double seconds = absl::ToDoubleSeconds(done - std::max(slot.began, std::exchange(last_done_, done)));
  if (scheduler_.num_in_flight() > 1) {
    NoteStepBegins();
  } else {
    step_began_ns_.store(kNoStep, std::memory_order_relaxed);
  }

  if (status.ok()) {
    scheduler_.Commit(slot.plan, result_, clock_.now(), outputs_.gathered(), seconds);
  } else {
    result_.times = {};
    if (absl::IsDataLoss(status)) blocks_.DropAll();  // nobody else may find what this step found
    scheduler_.FailStep(slot.plan, status, clock_.now(), outputs_.gathered());
  }
  const absl::Duration committed = MonotonicNow();
  AddStepSeconds(slot.scheduling + absl::ToDoubleSeconds(committed - done),
                 absl::ToDoubleSeconds(committed - std::max(slot.began, std::exchange(last_committed_, committed))));
}

void EngineImpl::FinishSteps() {
  while (scheduler_.num_in_flight() > 0) FinishStep();
}

void EngineImpl::NoteStepBegins() {
  step_began_ns_.store(absl::ToInt64Nanoseconds(clock_.steady()), std::memory_order_relaxed);
}

absl::Status EngineImpl::WaitForStep(const StepSlot& slot) {
  QUIRE_RETURN_IF_ERROR(slot.submitted);
  QUIRE_RETURN_IF_ERROR(runner_->Wait(&result_));
  const SchedulePlan& plan = slot.plan;
  if (result_.samples.size() == plan.samples.size() && result_.scores.size() == plan.scores.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the model answered ", result_.samples.size(), " samples and ",
                                          result_.scores.size(), " scores, want ", plan.samples.size(), " and ",
                                          plan.scores.size()));
}

void EngineImpl::AddStepSeconds(double scheduling, double total) {
  EngineStats::StepSeconds& last = running_stats_.last_step_seconds;
  last.linear = result_.times.linear;
  last.attention = result_.times.attention;
  last.sampling = result_.times.sampling;
  last.scheduling = scheduling;
  last.total = total;
  last.rest = std::max(0.0, total - scheduling - last.linear - last.attention - last.sampling);
  EngineStats::StepSeconds& sum = running_stats_.total_step_seconds;
  sum.linear += last.linear;
  sum.attention += last.attention;
  sum.sampling += last.sampling;
  sum.scheduling += last.scheduling;
  sum.rest += last.rest;
  sum.total += last.total;
}

// Hands out what has gathered. Counters are out before the events that made them, and these before WaitIdle knows.
void EngineImpl::Publish() {
  const SchedulerStats& scheduled = scheduler_.stats();
  const BlockStats blocks = blocks_.stats();
  EngineStats& stats = running_stats_;
  stats.steps = scheduled.steps;
  stats.requests_running = scheduled.requests_running;
  stats.requests_held = scheduled.requests_held;
  stats.kv_blocks_total = blocks.total;
  stats.kv_blocks_free = blocks.free;
  stats.kv_blocks_cached = blocks.cached;
  stats.kv_blocks_active = blocks.active;
  stats.evictions = blocks.evictions;
  stats.prefix_query_tokens = scheduled.prefix_query_tokens;
  stats.prefix_hit_tokens = scheduled.prefix_hit_tokens;
  stats.preemptions = scheduled.preemptions;
  stats.swaps = scheduled.swaps;
  stats.host_blocks_total = blocks.host_total;
  stats.host_blocks_used = blocks.host_used;
  const int64_t block_bytes = info_.kv_bytes_per_token * info_.block_size;
  stats.host_bytes_out = blocks.copied_out * block_bytes;
  stats.host_bytes_in = blocks.copied_in * block_bytes;
  stats.requests_finished = scheduled.requests_finished;
  stats.requests_aborted = scheduled.requests_aborted;
  stats.requests_failed = scheduled.requests_failed;
  stats.prompt_tokens = scheduled.prompt_tokens;
  stats.generation_tokens = scheduled.generation_tokens;
  stats.surplus_tokens = scheduled.surplus_tokens;
  if (trace_ != nullptr) {
    stats.trace_bytes = trace_->num_bytes();
    stats.trace_records_lost = trace_->num_lost();
  }
  {
    std::lock_guard lock(stats_mutex_);
    stats_ = stats;
  }
  inbox_.SetWaiting(QueueOf(scheduled));
  outputs_.CollectFinished(&finished_);
  outputs_.Publish();
  const bool idle_soon = !scheduler_.HasWork() && scheduler_.num_in_flight() > 0;  // a surplus row still holds blocks
  if (finished_.empty() || idle_soon) return;
  inbox_.Finish(finished_);
  finished_.clear();
}

// Ends whatever lives, and the engine with it.
void EngineImpl::Finish() {
  FinishSteps();
  const absl::Time now = clock_.now();
  for (uint64_t handle : inbox_.LiveHandles()) scheduler_.Abort(handle, now, outputs_.gathered());
  Publish();
  outputs_.Close();
  CheckWhenIdle();
  RunTasks(std::move(messages_.tasks));
  RunTasks(inbox_.Close());
  RunWatchers();
  watchers_.clear();
  if (trace_ == nullptr) return;
  trace_->Finish();
  std::lock_guard lock(stats_mutex_);
  stats_.trace_bytes = trace_->num_bytes();
  stats_.trace_records_lost = trace_->num_lost();
}

void EngineImpl::CheckWhenIdle() {
#ifndef NDEBUG
  if (absl::Status status = scheduler_.CheckInvariants(); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    QUIRE_CHECK(status.ok());
  }
#endif
}

}  // namespace quire
