#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr float kGreedyBelow = 1e-5f;  // SamplingParams::temperature
constexpr int32_t kSparedRequests = 8;

}  // namespace

void Scheduler::Schedule(absl::Time now, SchedulePlan* plan, StepOutputs* outputs) {
  QUIRE_CHECK(!in_flight_);
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnSchedule(now); });
  plan->step = 0;
  plan->num_tokens = 0;
  plan->load = {};
  plan->sequences.clear();
  plan->copies.clear();
  plan->samples.clear();
  plan->scores.clear();

  ++round_;
  EndExpired(now, outputs);
  blocks_->AdvanceTime(now);
  DropHopeless(now, outputs);
  SpareWaiting();
  copies_ = &plan->copies;
  const double seconds = std::min(absl::ToDoubleSeconds(options_.itl_target), policy_->BeginStep(now, running_));
  do {
    MakePlan(seconds, now, plan);
  } while (plan->empty() && PreemptIdleBeam());

  if (plan->empty() && HasWork()) {
    Sequence* const first = waiting_.First();
    QUIRE_CHECK(first != nullptr);
    const absl::Status status = absl::ResourceExhaustedError(
        absl::StrFormat("no request can advance: %d of %d KV blocks are unused and none is released by waiting",
                        blocks_->num_unused(), blocks_->num_usable()));
    EndGroup(first->group, FinishReason::kError, status, now, outputs);
    CleanUp();
  }
  if (observer_ != nullptr) observer_->OnPlan(*plan);
}

void Scheduler::MakePlan(double seconds, absl::Time now, SchedulePlan* plan) {
  prefills_.clear();
  budget_.Reset(options_.max_num_batched_tokens, seconds);
  preempted_ = false;
  for (Sequence* sequence : running_) sequence->planned_tokens = 0;
  PlanClass(false);
  if (num_offline_ > 0) PlanClass(true);
  PlanLeftover();
  FillPlan(now, plan);
}

// What those that wait will find in the cache shall not go for others: looked at again whenever something went.
void Scheduler::SpareWaiting() {
  if (waiting_.empty() || evictions_seen_ == blocks_->num_evictions()) return;
  evictions_seen_ = blocks_->num_evictions();
  int32_t left = kSparedRequests;
  for (const bool offline : {false, true}) {
    const Lane* lane = waiting_.FirstLane(offline);
    if (lane == nullptr) continue;
    for (auto waiting = lane->waiting[offline].begin(); waiting != lane->waiting[offline].end() && left > 0;
         ++waiting, --left) {
      const EngineRequest& request = (*waiting)->group->request;
      if (request.reads_cache) blocks_->Spare(request.root_hash, request.prompt_hashes, request.prompt_ids);
    }
  }
}

// Online work first; offline work takes what is left, all within this step.
void Scheduler::PlanClass(bool offline) {
  PlanRunning(offline);
  PlanPrefills(offline);
  // After a preemption there is no room, and to admit the victim again would undo it.
  if (!preempted_) Admit(offline);
}

// One token for each running sequence. With more of them than tokens, those longest without a turn come first; offline
// ones also give way when the time is short.
void Scheduler::PlanRunning(bool offline) {
  const bool rotate = num_running_ > budget_.tokens() || (offline && budget_.timed());
  if (!rotate) {
    for (Sequence* sequence : running_) {
      if (sequence->group->request.offline == offline) PlanRow(sequence);
    }
  } else {
    order_.assign(running_.begin(), running_.end());
    std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : Before()(a, b);
    });
    for (Sequence* sequence : order_) {
      if (budget_.tokens() == 0) break;
      const bool decode = sequence->num_uncomputed() == 1;
      if (sequence->group->request.offline != offline) continue;
      if (offline && !budget_.HasTimeForRow(sequence->num_computed, decode)) continue;
      PlanRow(sequence);
    }
  }
  CleanUp();
}

void Scheduler::PlanRow(Sequence* sequence) {
  if (sequence->state != SequenceState::kRunning || IsIdleBeam(*sequence) || !MakeRoom(sequence)) return;
  sequence->planned_tokens = 1;
  budget_.TakeRow(sequence->num_computed, sequence->num_uncomputed() == 1);
}

// More tokens for those of a class that are behind by more than one, in order.
void Scheduler::PlanPrefills(bool offline) {
  const size_t first = prefills_.size();
  for (Sequence* sequence : running_) {
    if (sequence->planned_tokens > 0 && sequence->num_uncomputed() > 1 && sequence->group->request.offline == offline) {
      prefills_.push_back(sequence);
    }
  }
  if (first == prefills_.size()) return;
  std::sort(prefills_.begin() + first, prefills_.end(), Before());
  if (!offline) budget_.GuaranteeChunk();
  for (size_t i = first; i < prefills_.size(); ++i) {
    Sequence* sequence = prefills_[i];
    const bool others_want = i + 1 < prefills_.size() || waiting_.FirstLane(offline) != nullptr;
    sequence->planned_tokens +=
        budget_.TakeChunk(sequence->num_computed + 1, sequence->num_uncomputed() - 1, others_want);
  }
}

// What shares have left over.
void Scheduler::PlanLeftover() {
  for (Sequence* sequence : prefills_) {
    if (sequence->state != SequenceState::kRunning) continue;  // interrupted
    const int32_t planned = sequence->planned_tokens;
    sequence->planned_tokens +=
        budget_.TakeChunk(sequence->num_computed + planned, sequence->num_uncomputed() - planned, false);
  }
}

void Scheduler::FillPlan(absl::Time now, SchedulePlan* plan) {
  for (Sequence* sequence : running_) {
    if (sequence->planned_tokens == 0) continue;
    if (sequence->planned_tokens > 1) {  // with layer groups such a step may have to end earlier
      const int32_t planned_end = sequence->num_computed + sequence->planned_tokens;
      sequence->planned_tokens = blocks_->ReserveStep(sequence->table, planned_end) - sequence->num_computed;
    }
    ScheduledSequence entry;
    entry.sequence = sequence;
    entry.start = sequence->num_computed;
    entry.num_tokens = sequence->planned_tokens;
    entry.first_row = plan->num_tokens;
    AddRows(*sequence, &entry, plan);
    plan->sequences.push_back(entry);
    plan->num_tokens += entry.num_tokens;
    plan->load.Add(entry.start, entry.num_tokens, entry.num_tokens == 1 && entry.sample >= 0);

    SequenceGroup& group = *sequence->group;
    group.lane->served += entry.num_tokens;
    SetCommitted(sequence, std::max(0, sequence->committed - entry.num_tokens));
    sequence->last_step = step_ + 1;
    group.last_step = step_ + 1;
    if (group.first_step == 0) {
      group.first_step = step_ + 1;
      group.scheduled_time = now;
    }
  }
  if (plan->empty()) return;
  if (blocks_->integrity_enabled()) blocks_->TakeIntegrityWork(&plan->integrity);
  plan->step = ++step_;
  stats_.steps = step_;
  in_flight_ = true;
}

void Scheduler::AddRows(const Sequence& sequence, ScheduledSequence* entry, SchedulePlan* plan) const {
  const SequenceGroup& group = *sequence.group;
  const SamplingParams& params = group.request.params;
  const int32_t end = entry->start + entry->num_tokens;

  // The row of position p scores the token at p + 1.
  entry->scores_begin = static_cast<int32_t>(plan->scores.size());
  for (int32_t target = std::max(entry->start + 1, group.next_score_position);
       target <= end && target < group.prompt_len(); ++target) {
    plan->scores.push_back(
        {entry->first_row + target - 1 - entry->start, sequence.tokens[target], *params.prompt_logprobs});
  }
  entry->scores_count = static_cast<int32_t>(plan->scores.size()) - entry->scores_begin;

  if (end < sequence.num_tokens()) return;
  entry->sample = static_cast<int32_t>(plan->samples.size());
  SampleRow row;
  row.logits_row = entry->first_row + entry->num_tokens - 1;
  row.temperature = params.temperature < kGreedyBelow ? 0 : params.temperature;
  row.min_p = params.min_p;
  row.top_k = params.top_k;
  row.top_p = params.top_p;
  row.seed = params.seed;
  row.sequence_index = static_cast<uint32_t>(sequence.index);
  row.output_position = static_cast<uint32_t>(sequence.num_tokens() - group.prompt_len());
  row.num_logprobs = params.logprobs.value_or(SampleRow::kNoLogprobs);
  if (group.beams != nullptr) {  // which bans ids itself
    row.num_logprobs = std::max(row.num_logprobs, BeamSearch::NumCandidates(params.beam_width, group.ending_ids));
  } else if (static_cast<int64_t>(row.output_position) < params.min_tokens) {
    row.banned_ids = group.ending_ids;
  }
  plan->samples.push_back(row);
}

}  // namespace quire
