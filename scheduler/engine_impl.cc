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
#include "scheduler/token_constraints.h"

namespace quire {
namespace {

absl::Duration MonotonicNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

EngineClock WithDefaults(EngineClock clock) {
  if (clock.steady == nullptr) clock.steady = &MonotonicNow;
  return clock;
}

BlockManagerOptions BlockOptions(const EngineOptions& options, const EngineInfo& info,
                                 const std::vector<int32_t>& group_windows, bool traced) {
  BlockManagerOptions blocks;
  blocks.num_blocks = info.num_kv_blocks + 1;
  blocks.block_size = info.block_size;
  blocks.integrity = options.kv_integrity;
  if (traced) blocks.token_order = DrawTokenPermutation(info.config.vocab_size);
  blocks.num_host_blocks = info.num_host_blocks;
  blocks.enable_prefix_cache = options.scheduler.enable_prefix_caching;
  blocks.eviction = options.eviction;
  blocks.num_events = info.num_kv_events;
  if (group_windows == std::vector<int32_t>{0}) return blocks;
  blocks.group_windows = group_windows;
  blocks.num_pages = blocks.num_blocks;
  blocks.num_host_pages = blocks.num_host_blocks;
  // Where every group slides, blocks outnumber pages: those of a sequence that have slid out, and those that lead to
  // what can still be found.
  if (std::find(group_windows.begin(), group_windows.end(), 0) == group_windows.end()) {
    constexpr int64_t kBlocksPerPage = 8;
    const int64_t longest = (int64_t{info.max_model_len} + info.block_size - 1) / info.block_size;
    const int64_t most = INT32_MAX / info.block_size / static_cast<int64_t>(group_windows.size());
    const int64_t wanted = blocks.num_pages + std::max(longest, (kBlocksPerPage - 1) * blocks.num_pages);
    blocks.num_blocks = static_cast<int32_t>(std::min(wanted, most - blocks.num_host_pages));
    blocks.num_host_blocks =
        static_cast<int32_t>(std::min(kBlocksPerPage * blocks.num_host_pages, most - blocks.num_blocks));
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

EngineImpl::Core::Core(const EngineImpl& engine, bool traced)
    : blocks_options(BlockOptions(engine.options_, engine.info_, engine.runner_->group_windows(), traced)),
      blocks(blocks_options),
      quotas(engine.options_),
      scheduler(engine.scheduler_options_, engine.limits_, &blocks),
      slots(std::clamp(engine.runner_->max_steps_in_flight(), 1, 2),
            {.builder = BatchBuilder(engine.info_.block_size, engine.info_.max_model_len, blocks.pages())}) {}

EngineImpl::EngineImpl(const EngineOptions& options, EngineInfo info, std::unique_ptr<ModelRunner> runner,
                       EngineClock clock)
    : options_(options),
      info_(std::move(info)),
      step_timeout_(options.step_timeout),
      clock_(WithDefaults(std::move(clock))),
      inbox_({options.max_queued_requests, options.max_queued_tokens, options.max_queue_wait}),
      outputs_(options.num_output_shards),
      runner_(std::move(runner)),
      scheduler_options_(WithOverlap(options.scheduler, *runner_)),
      limits_({.max_model_len = info_.max_model_len, .eos_token_ids = info_.config.eos_token_ids}),
      core_(std::make_shared<Core>(*this, !options.schedule_trace_path.empty())) {
  Publish();
}

EngineImpl::~EngineImpl() { Stop(); }

void EngineImpl::Start() {
  std::lock_guard lock(thread_mutex_);
  if (stopped_ || thread_.joinable()) return;
  inbox_.Open();
  thread_ = std::thread(&EngineImpl::Run, this);
}

absl::Status EngineImpl::Submit(EngineRequest request) {
  std::shared_ptr<const Core> core;
  {
    std::lock_guard lock(core_mutex_);
    core = core_;
  }
  request.is_constrained = request.constraint != nullptr;
  QUIRE_RETURN_IF_ERROR(core->scheduler.CheckRequest(request));
  if (request.is_constrained && request.constraint->vocab_size() != info_.config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the constraint is for ", request.constraint->vocab_size(),
                                                   " ids, the model has ", info_.config.vocab_size));
  }
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
    answer = core_->scheduler.CheckInvariants();
    done.count_down();
  };
  // Without an engine thread nobody else touches the scheduler.
  if (!inbox_.PostTask(check)) check();
  done.wait();
  return answer;
}

absl::Status EngineImpl::Post(Task task) {
  if (inbox_.PostTask([this, task = std::move(task)] { task(core_->blocks); })) return absl::OkStatus();
  return absl::UnavailableError("the engine does not run");
}

absl::Status EngineImpl::Watch(Watcher watcher) {
  if (inbox_.PostWatcher([this, watcher = std::move(watcher)] { return watcher(core_->blocks); }))
    return absl::OkStatus();
  return absl::UnavailableError("the engine does not run");
}

void EngineImpl::Run() {
  bool was_busy = false;
  while (true) {
    const bool busy = IsBusy();
    if (was_busy && !busy) CheckWhenIdle();
    was_busy = busy;
    inbox_.Take(busy ? absl::InfinitePast() : NextWake(), &messages_);
    Apply(messages_);
    if (messages_.stop) break;
    if (IsBusy()) {
      Step();
    } else {
      core_->scheduler.DropExpired(clock_.now(), outputs_.gathered());
    }
    if (!messages_.tasks.empty()) FinishSteps();
    Publish();
    RunTasks(std::move(messages_.tasks));
    AdvanceTrace();
    RunWatchers();
  }
  Finish();
}

// When there is something to do without a message.
absl::Time EngineImpl::NextWake() const {
  const absl::Time deadline = core_->scheduler.next_deadline();
  return pending_trace_ == nullptr ? deadline : std::min(deadline, pending_until_);
}

// Takes them: what they hold lives no longer than they run.
void EngineImpl::RunTasks(std::vector<std::function<void()>> tasks) {
  if (tasks.empty()) return;
  core_->blocks.AdvanceTime(clock_.now());
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
    core_->quotas.Meet(request, core_->blocks);
    QUIRE_CHECK(core_->scheduler.Add(std::move(request)).ok());
  }
  if (!messages.holds.empty()) FinishSteps();
  for (const EngineMessages::HoldMessage& hold : messages.holds) core_->scheduler.SetHeld(hold.handle, hold.held);
  if (messages.aborts.empty()) return;
  const absl::Time now = clock_.now();
  for (const EngineMessages::AbortMessage& abort : messages.aborts) {
    if (abort.sequence_index == EngineMessages::kWholeRequest) {
      core_->scheduler.Abort(abort.handle, now, outputs_.gathered());
    } else {
      core_->scheduler.AbortSequence(abort.handle, abort.sequence_index, now, outputs_.gathered());
    }
  }
}

// Adds a step to those in flight, and ends the earliest if there may be no more or there was nothing to add.
void EngineImpl::Step() {
  const bool added = core_->scheduler.HasWork() && BeginStep();
  if (added && core_->scheduler.num_in_flight() < static_cast<int32_t>(core_->slots.size())) return;
  if (core_->scheduler.num_in_flight() > 0) FinishStep();
}

bool EngineImpl::BeginStep() {
  StepSlot& slot = core_->slots[(core_->scheduler.stats().steps + 1) % core_->slots.size()];
  slot.began = MonotonicNow();
  core_->scheduler.Schedule(clock_.now(), &slot.plan, outputs_.gathered());
  inbox_.SetWaiting(QueueOf(core_->scheduler.stats()));
  if (slot.plan.empty()) return false;
  FillMasks(&slot.plan);
  const ForwardBatch& batch = slot.builder.Build(slot.plan);
  slot.scheduling = absl::ToDoubleSeconds(MonotonicNow() - slot.began);
  if (core_->scheduler.num_in_flight() == 1) NoteStepBegins();
  slot.submitted = runner_->Submit(batch);
  if (!slot.submitted.ok()) FinishSteps();  // the next one could not take tokens from it
  return true;
}

// Steps run one after another: what one takes is counted from the end of the one before.
void EngineImpl::FinishStep() {
  const StepSlot& slot =
      core_->slots[(core_->scheduler.stats().steps - core_->scheduler.num_in_flight() + 1) % core_->slots.size()];
  const absl::Status status = WaitForStep(slot);
  const absl::Duration done = MonotonicNow();
  const double seconds = absl::ToDoubleSeconds(done - std::max(slot.began, std::exchange(last_done_, done)));
  if (core_->scheduler.num_in_flight() > 1) {
    NoteStepBegins();
  } else {
    step_began_ns_.store(kNoStep, std::memory_order_relaxed);
  }

  if (status.ok()) {
    AdvanceConstraints(slot.plan, options_.append_forced_tokens, &result_);
    core_->scheduler.Commit(slot.plan, result_, clock_.now(), outputs_.gathered(), seconds);
  } else {
    result_.times = {};
    if (absl::IsDataLoss(status)) core_->blocks.DropAll();  // nobody else may find what this step found
    core_->scheduler.FailStep(slot.plan, status, clock_.now(), outputs_.gathered());
    ReportDeviceFailure();
  }
  const absl::Duration committed = MonotonicNow();
  AddStep(slot.scheduling + absl::ToDoubleSeconds(committed - done),
          absl::ToDoubleSeconds(committed - std::max(slot.began, std::exchange(last_committed_, committed))),
          slot.plan.num_tokens);
}

void EngineImpl::ReportDeviceFailure() {
  const absl::Status failure = runner_->broken();
  if (failure.ok() || std::exchange(device_failure_told_, true)) return;
  if (options_.on_device_failure != nullptr) options_.on_device_failure(failure);
}

void EngineImpl::FinishSteps() {
  while (core_->scheduler.num_in_flight() > 0) FinishStep();
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

void EngineImpl::AddStep(double scheduling, double total, int32_t num_tokens) {
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
  EngineStats::StepCounts& counts = running_stats_.step_counts;
  const auto count = [](BucketCounts& part, double seconds) { part.Add(EngineStats::StepCounts::kSeconds, seconds); };
  count(counts.linear, last.linear);
  count(counts.attention, last.attention);
  count(counts.sampling, last.sampling);
  count(counts.scheduling, last.scheduling);
  count(counts.rest, last.rest);
  count(counts.total, last.total);
  counts.tokens.Add(EngineStats::StepCounts::kTokens, num_tokens);
}

// Hands out what has gathered. Counters are out before the events that made them, and these before WaitIdle knows.
void EngineImpl::Publish() {
  const SchedulerStats& scheduled = core_->scheduler.stats();
  const BlockStats blocks = core_->blocks.stats();
  EngineStats& stats = running_stats_;
  stats.steps = earlier_.steps + scheduled.steps;
  stats.requests_running = scheduled.requests_running;
  stats.requests_held = scheduled.requests_held;
  stats.kv_blocks_total = blocks.total;
  stats.kv_blocks_free = blocks.free;
  stats.kv_blocks_cached = blocks.cached;
  stats.kv_blocks_active = blocks.active;
  stats.evictions = earlier_.evictions + blocks.evictions;
  stats.prefix_query_tokens = earlier_.prefix_query_tokens + scheduled.prefix_query_tokens;
  stats.prefix_hit_tokens = earlier_.prefix_hit_tokens + scheduled.prefix_hit_tokens;
  stats.preemptions = earlier_.preemptions + scheduled.preemptions;
  stats.swaps = earlier_.swaps + scheduled.swaps;
  stats.host_blocks_total = blocks.host_total;
  stats.host_blocks_used = blocks.host_used;
  const int32_t num_groups = core_->blocks.pages() == nullptr ? 1 : core_->blocks.pages()->num_groups();
  const int64_t block_bytes = info_.kv_bytes_per_token * info_.block_size / num_groups;  // of the layers of one
  stats.host_bytes_out = earlier_.host_bytes_out + blocks.copied_out * block_bytes;
  stats.host_bytes_in = earlier_.host_bytes_in + blocks.copied_in * block_bytes;
  stats.requests_finished = earlier_.requests_finished + scheduled.requests_finished;
  stats.requests_aborted = earlier_.requests_aborted + scheduled.requests_aborted;
  stats.requests_failed = earlier_.requests_failed + scheduled.requests_failed;
  stats.prompt_tokens = earlier_.prompt_tokens + scheduled.prompt_tokens;
  stats.drafting_steps = earlier_.drafting_steps + scheduled.drafting_steps;
  stats.drafted_tokens = earlier_.drafted_tokens + scheduled.drafted_tokens;
  stats.accepted_tokens = earlier_.accepted_tokens + scheduled.accepted_tokens;
  stats.surplus_tokens = earlier_.surplus_tokens + scheduled.surplus_tokens;
  stats.generation_tokens = earlier_.generation_tokens + scheduled.generation_tokens;
  NoteTrace();
  {
    std::lock_guard lock(stats_mutex_);
    stats_ = stats;
  }
  inbox_.SetWaiting(QueueOf(scheduled));
  outputs_.CollectFinished(&finished_);
  outputs_.Publish();
  const bool idle_soon =
      !core_->scheduler.HasWork() && core_->scheduler.num_in_flight() > 0;  // a surplus row still holds blocks
  if (finished_.empty() || idle_soon) return;
  inbox_.Finish(finished_);
  finished_.clear();
}

// Ends whatever lives, and the engine with it.
void EngineImpl::Finish() {
  FinishSteps();
  const absl::Time now = clock_.now();
  for (uint64_t handle : inbox_.LiveHandles()) core_->scheduler.Abort(handle, now, outputs_.gathered());
  Publish();
  outputs_.Close();
  CheckWhenIdle();
  RunTasks(std::move(messages_.tasks));
  RunTasks(inbox_.Close());
  RunWatchers();
  watchers_.clear();
  if (trace_ != nullptr) trace_->Finish();
  NoteTrace();
  std::lock_guard lock(stats_mutex_);
  stats_ = running_stats_;
}

void EngineImpl::CheckWhenIdle() {
#ifndef NDEBUG
  if (absl::Status status = core_->scheduler.CheckInvariants(); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    QUIRE_CHECK(status.ok());
  }
#endif
}

}  // namespace quire
