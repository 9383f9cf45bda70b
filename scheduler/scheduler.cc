#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

constexpr int32_t kMaxSequencesPerRequest = 64;
constexpr float kGreedyBelow = 1e-5f;  // SamplingParams::temperature

SequenceOutput EventOf(const Sequence& sequence, FinishReason reason, const absl::Status& error, absl::Time now) {
  SequenceOutput event;
  event.handle = sequence.group->request.handle;
  event.sequence_index = sequence.index;
  event.finish_reason = reason;
  event.error = error;
  event.time = now;
  return event;
}

// What all samples of a sequence have in common.
void SetSampleRow(const SequenceGroup& group, Sequence* sequence) {
  const SamplingParams& params = group.request.params;
  SampleRow& row = sequence->sample_row;
  row.temperature = params.temperature < kGreedyBelow ? 0 : params.temperature;
  row.min_p = params.min_p;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.seed = params.seed;
  row.sequence_index = static_cast<uint32_t>(sequence->index);
  row.num_logprobs = params.logprobs.value_or(SampleRow::kNoLogprobs);
  if (group.beams != nullptr) {
    row.num_logprobs = std::max(row.num_logprobs, BeamSearch::NumCandidates(params.beam_width, group.ending_ids));
  }
  row.wants_processed_logprobs = params.processed_logprobs;
  sequence->wants_extras = params.min_tokens > 0 || params.rules != nullptr || group.request.is_constrained;
  if (params.rules != nullptr) sequence->mirostat_bound = 2 * params.rules->mirostat_tau;
}

}  // namespace

bool Scheduler::Before::operator()(const Sequence* a, const Sequence* b) const {
  const SequenceGroup &ga = *a->group, &gb = *b->group;
  if (ga.offline != gb.offline) return gb.offline;
  if (ga.lane != gb.lane && ga.lane->charge() != gb.lane->charge()) return ga.lane->charge() < gb.lane->charge();
  return BeforeInLane()(a, b);
}

Scheduler::Scheduler(const SchedulerOptions& options, SequenceLimits limits, BlockManager* blocks)
    : options_(options),
      limits_(std::move(limits)),
      blocks_(blocks),
      policy_(CreatePolicy(options_, &step_time_)),
      probe_table_(blocks->NewTable()),
      budget_(&step_time_) {
  QUIRE_CHECK(options_.max_num_seqs >= 1 && options_.max_num_batched_tokens >= 1 && limits_.max_model_len >= 2);
  QUIRE_CHECK(options_.max_plans_in_flight == 1 || options_.max_plans_in_flight == 2);
  running_.reserve(options_.max_num_seqs);
  order_.reserve(options_.max_num_seqs);
  prefills_.reserve(options_.max_num_seqs);
  prefills_in_flight_.reserve(options_.max_num_seqs);
}

absl::Status Scheduler::CheckRequest(const EngineRequest& request) const {
  const auto prompt_len = static_cast<int64_t>(request.prompt_ids.size());
  const SamplingParams& params = request.params;
  if (prompt_len < 1 || prompt_len >= limits_.max_model_len) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the prompt has %d tokens, allowed are 1 to %d (max_model_len %d less one output token)",
                        prompt_len, limits_.max_model_len - 1, limits_.max_model_len));
  }
  if (params.n < 1 || params.n > kMaxSequencesPerRequest) {
    return absl::InvalidArgumentError(
        absl::StrFormat("n is %d, allowed are 1 to %d", params.n, kMaxSequencesPerRequest));
  }
  if (params.beam_width != 0 && (params.beam_width < params.n || params.beam_width > kMaxSequencesPerRequest)) {
    return absl::InvalidArgumentError(absl::StrFormat("beam_width is %d, allowed are n = %d to %d", params.beam_width,
                                                      params.n, kMaxSequencesPerRequest));
  }
  if (params.max_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrFormat("max_tokens is %d, it must be at least 1", params.max_tokens));
  }
  if (static_cast<int64_t>(request.prompt_hashes.size()) != prompt_len / blocks_->block_size()) {
    return absl::InvalidArgumentError(absl::StrFormat("%d block hashes for a prompt of %d tokens in blocks of %d",
                                                      request.prompt_hashes.size(), prompt_len, blocks_->block_size()));
  }
  if (request.is_constrained && params.beam_width != 0) {
    return absl::InvalidArgumentError("structured output does not go with beam search");
  }
  // The last token is never stored.
  const int64_t stored = std::min<int64_t>(prompt_len + params.max_tokens, limits_.max_model_len) - 1;
  const int64_t needed = blocks_->BlocksForSequence(static_cast<int32_t>(stored));
  if (needed > blocks_->num_usable()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a prompt of %d tokens with max_tokens %d needs %d KV blocks of %d tokens, the pool has %d",
                        prompt_len, params.max_tokens, needed, blocks_->block_size(), blocks_->num_usable()));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Add(EngineRequest request) {
  QUIRE_RETURN_IF_ERROR(CheckRequest(request));
  const uint64_t handle = request.handle;
  auto [slot, inserted] = groups_.try_emplace(handle);
  if (!inserted) return absl::AlreadyExistsError(absl::StrFormat("handle %d is in use", handle));
  // Drafts need rows that depend on tokens alone. Said before it is observed: observers see no rules.
  const bool keeps_state = request.params.rules != nullptr && request.params.rules->keeps_state();
  if (keeps_state) request.params.num_speculative_tokens = 0;
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnAdd(request); });

  slot->second = std::make_unique<SequenceGroup>(std::move(request));
  SequenceGroup& group = *slot->second;
  const SamplingParams& params = group.request.params;
  group.max_len =
      static_cast<int32_t>(std::min<int64_t>(int64_t{group.prompt_len()} + params.max_tokens, limits_.max_model_len));
  group.next_score_position = params.prompt_logprobs.has_value() ? 1 : group.prompt_len();
  if (!params.ignore_eos) group.ending_ids = limits_.eos_token_ids;
  group.ending_ids.insert(group.ending_ids.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  policy_->Place(&group, step_);
  group.arrival_number = num_arrivals_++;
  num_offline_ += group.offline;
  const int32_t num_sequences = std::max(params.n, params.beam_width);
  group.num_unfinished = num_sequences;
  group.sequences.reserve(num_sequences);
  group.beams = MakeBeams(group);
  for (int32_t i = 0; i < num_sequences; ++i) {
    SetSampleRow(group, &group.sequences.emplace_back(&group, i, blocks_->NewTable()));
    group.sequences.back().max_drafts = MaxDrafts(group);
  }
  CountRequest(group, +1);
  SetState(&group.sequences[0], SequenceState::kWaiting);
  evictions_seen_ = -1;
  next_deadline_ = std::min(next_deadline_, group.request.deadline);
  return absl::OkStatus();
}

void Scheduler::Abort(uint64_t handle, absl::Time now, StepOutputs* outputs) {
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnAbort(handle, now); });
  SequenceGroup* group = Find(handle);
  if (group == nullptr) return;
  EndGroup(group, FinishReason::kAborted, absl::OkStatus(), now, outputs);
  CleanUp();
}

void Scheduler::AbortSequence(uint64_t handle, int32_t sequence_index, absl::Time now, StepOutputs* outputs) {
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnAbortSequence(handle, sequence_index, now); });
  SequenceGroup* group = Find(handle);
  if (group == nullptr || group->beams != nullptr) return;
  if (sequence_index < 0 || sequence_index >= static_cast<int32_t>(group->sequences.size())) return;
  Sequence* sequence = &group->sequences[sequence_index];
  if (sequence->state == SequenceState::kFinished) return;
  const bool computes_prompt = sequence->state != SequenceState::kBlocked;
  EmitEvent(sequence, EventOf(*sequence, FinishReason::kAborted, absl::OkStatus(), now), outputs);
  // If others still wait for the prompt, the next of them computes it, unless some get theirs from a plan in flight.
  const bool some_ride =
      std::any_of(group->sequences.begin(), group->sequences.end(), [](const Sequence& s) { return s.rides(); });
  if (computes_prompt && !some_ride) {
    const auto next = std::find_if(group->sequences.begin(), group->sequences.end(),
                                   [](const Sequence& s) { return s.state == SequenceState::kBlocked; });
    if (next != group->sequences.end()) SetState(&*next, SequenceState::kWaiting);
  }
  CleanUp();
}

void Scheduler::SetHeld(uint64_t handle, bool held) {
  QUIRE_CHECK(num_in_flight() == 0);
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnSetHeld(handle, held); });
  SequenceGroup* group = Find(handle);
  if (group == nullptr || group->held == held) return;
  for (Sequence& sequence : group->sequences) {
    // Only if it is to be held.
    if (sequence.state == SequenceState::kRunning) Preempt(&sequence, PreemptReason::kHeld, nullptr);
    if (sequence.state == SequenceState::kWaiting && held) waiting_.Erase(&sequence);
  }
  CountRequest(*group, -1);
  group->held = held;
  CountRequest(*group, +1);
  stats_.requests_held += held ? 1 : -1;
  for (Sequence& sequence : group->sequences) {
    if (sequence.state == SequenceState::kWaiting && !held) waiting_.Insert(&sequence);
  }
  CleanUp();
}

SequenceGroup* Scheduler::Find(uint64_t handle) const {
  const auto found = groups_.find(handle);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Scheduler::SetState(Sequence* sequence, SequenceState state) {
  SequenceGroup& group = *sequence->group;
  const auto level = std::make_pair(group.offline, group.request.priority);
  if (sequence->state == SequenceState::kWaiting && !group.held) waiting_.Erase(sequence);
  if (sequence->state == SequenceState::kRunning) {
    running_changed_ = true;
    --num_running_;
    CountRequest(group, -1);
    --group.num_running;
    CountRequest(group, +1);
    const auto count = running_levels_.find(level);
    if (--count->second == 0) running_levels_.erase(count);
    SetCommitted(sequence, 0);
  }
  sequence->state = state;
  if (state == SequenceState::kWaiting && !group.held) waiting_.Insert(sequence);
  if (state == SequenceState::kRunning) {
    running_.push_back(sequence);
    ++num_running_;
    CountRequest(group, -1);
    ++group.num_running;
    CountRequest(group, +1);
    ++running_levels_[level];
    const int32_t left = group.max_len - sequence->num_tokens();
    SetCommitted(sequence, sequence->num_uncomputed() + group.lane->ExpectOutput(left));
  }
}

void Scheduler::CountRequest(const SequenceGroup& group, int32_t sign) {
  if (group.num_running > 0) {
    stats_.requests_running += sign;
  } else if (!group.held) {
    stats_.requests_waiting += sign;
    stats_.waiting_prompt_tokens += sign * group.prompt_len();
  }
}

void Scheduler::ReleaseBlocks(Sequence* sequence) {
  // Tokens that a failed request stored are not worth finding again.
  if (!sequence->table.empty() && !sequence->group->failed) {
    blocks_->Seal(sequence->table, sequence->tokens, sequence->keys);
  }
  sequence->table.Clear();
}

void Scheduler::EmitEvent(Sequence* sequence, SequenceOutput event, StepOutputs* outputs) {
  outputs->sequences.push_back(std::move(event));
  CompleteEvent(sequence, &outputs->sequences.back());
}

void Scheduler::CompleteEvent(Sequence* sequence, SequenceOutput* event) {
  SequenceGroup* group = sequence->group;
  if (!sequence->has_siblings) group->last_step = sequence->last_step;
  const bool finished = event->finish_reason != FinishReason::kNone;
  if (finished) {
    if (observer_ != nullptr) observer_->OnEnded(*sequence, event->finish_reason, event->error);
    SetState(sequence, SequenceState::kFinished);
    if (!InFlight(*sequence)) ReleaseBlocks(sequence);
    if (event->finish_reason != FinishReason::kAborted && event->finish_reason != FinishReason::kError)
      group->lane->NoteOutput(sequence->num_tokens() - group->prompt_len());
    event->request_finished = --group->num_unfinished == 0;
  }
  event->cached_tokens = group->cached_tokens;
  event->drafted_tokens = group->drafted_tokens;
  event->accepted_tokens = group->accepted_tokens;
  event->miss = group->prefix_match.miss;
  event->missed_block = group->prefix_match.missed_block;
  event->evicted_at = group->prefix_match.evicted_at;
  event->num_preemptions = group->num_preemptions;
  event->first_step = group->first_step;
  event->last_step = group->last_step;
  event->scheduled_time = group->scheduled_time;
  event->first_token_time = group->first_token_time;
  if (finished && group->num_unfinished == 0) Retire(group);
}

void Scheduler::Retire(SequenceGroup* group) {
  ++(group->aborted ? stats_.requests_aborted : group->failed ? stats_.requests_failed : stats_.requests_finished);
  CountRequest(*group, -1);
  stats_.requests_held -= group->held;
  num_offline_ -= group->offline;
  policy_->Forget(*group);
  const auto owner = groups_.find(group->request.handle);
  finished_groups_.push_back(std::move(owner->second));
  groups_.erase(owner);
}

void Scheduler::DismissUnseen(SequenceGroup* group) {
  for (size_t i = group->request.params.n; i < group->sequences.size(); ++i) {
    Sequence* sequence = &group->sequences[i];
    if (sequence->state == SequenceState::kFinished) continue;
    SetState(sequence, SequenceState::kFinished);
    if (!InFlight(*sequence)) ReleaseBlocks(sequence);
    --group->num_unfinished;
  }
}

void Scheduler::EndGroup(SequenceGroup* group, FinishReason reason, const absl::Status& status, absl::Time now,
                         StepOutputs* outputs) {
  group->aborted = reason == FinishReason::kAborted;
  group->failed = reason == FinishReason::kError;
  DismissUnseen(group);
  for (Sequence& sequence : group->sequences) {
    if (sequence.state == SequenceState::kFinished) continue;
    EmitEvent(&sequence, EventOf(sequence, reason, status, now), outputs);
  }
}

void Scheduler::DropExpired(absl::Time now, StepOutputs* outputs) {
  if (now < next_deadline_) return;
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnDropExpired(now); });
  EndExpired(now, outputs);
}

void Scheduler::EndExpired(absl::Time now, StepOutputs* outputs) {
  if (now < next_deadline_) return;
  std::vector<SequenceGroup*> expired;
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [handle, group] : groups_) {
    if (group->request.deadline <= now) {
      expired.push_back(group.get());
    } else {
      next_deadline_ = std::min(next_deadline_, group->request.deadline);
    }
  }
  std::sort(expired.begin(), expired.end(),
            [](const SequenceGroup* a, const SequenceGroup* b) { return a->arrival_number < b->arrival_number; });
  for (SequenceGroup* group : expired) {
    EndGroup(group, FinishReason::kError,
             absl::DeadlineExceededError(group->admitted ? "the request's deadline passed while it was running"
                                                         : "the request's deadline passed while it was waiting"),
             now, outputs);
  }
  CleanUp();
}

// Ends what cannot meet its deadline even alone, so that it takes nothing from those that can.
void Scheduler::DropHopeless(absl::Time now, StepOutputs* outputs) {
  if (!policy_->judges_deadlines()) return;
  hopeless_.clear();
  const auto judge = [&](Sequence* sequence) {
    SequenceGroup* group = sequence->group;
    if (!policy_->IsHopeless(*sequence, now)) return;
    if (hopeless_.empty() || hopeless_.back() != group) hopeless_.push_back(group);
  };
  for (Sequence* sequence : running_) judge(sequence);
  for (const bool offline : {false, true}) {
    Lane* lane = waiting_.FirstLane(offline);
    if (lane == nullptr) continue;
    // Those that have no time left stand at the head.
    FillWindow(lane, offline);
    for (Sequence* sequence : window_) judge(sequence);
  }
  for (SequenceGroup* group : hopeless_) {
    if (group->num_unfinished == 0) continue;  // stood there twice
    EndGroup(group, FinishReason::kError,
             absl::DeadlineExceededError(absl::StrFormat(
                 "the deadline cannot be met: %s are left, and the request needs more than that even alone",
                 absl::FormatDuration(absl::Trunc(group->request.deadline - now, absl::Milliseconds(1))))),
             now, outputs);
  }
  if (!hopeless_.empty()) CleanUp();
}

void Scheduler::FailStep(const SchedulePlan& plan, const absl::Status& status, absl::Time now, StepOutputs* outputs) {
  QUIRE_CHECK(num_in_flight() > 0 && plan.step == committed_step_ + 1 && !status.ok());
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnFailStep(plan, status, now); });
  ++committed_step_;
  for (const ScheduledSequence& entry : plan.sequences) {
    if (Find(entry.sequence->group->request.handle) == entry.sequence->group) {
      EndGroup(entry.sequence->group, FinishReason::kError, status, now, outputs);
    }
    if (!InFlight(*entry.sequence)) ReleaseBlocks(entry.sequence);
  }
  SendBack(plan.riders);
  CleanUp();
  DropFailedCopies(plan, status, now, outputs);
  if (blocks_->integrity_enabled()) blocks_->EndIntegrityWork(plan.integrity, /*failed=*/true);
  CleanUp();
}

void Scheduler::CleanUp() {
  if (running_changed_) {
    std::erase_if(running_, [](const Sequence* s) { return s->state != SequenceState::kRunning; });
    running_changed_ = false;
  }
  std::erase_if(finished_groups_, [this](const auto& group) { return group->last_step <= committed_step_; });
}

}  // namespace quire
