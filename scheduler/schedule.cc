#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int32_t kSparedRequests = 8;
constexpr size_t kFetchedAhead = 4;  // sequences

}  // namespace

void Scheduler::Schedule(absl::Time now, SchedulePlan* plan, StepOutputs* outputs) {
  QUIRE_CHECK(num_in_flight() < options_.max_plans_in_flight);
  const ObservedCall call(observer_, [&](SchedulerObserver& o) { o.OnSchedule(now); });
  plan->step = 0;
  plan->num_tokens = 0;
  plan->load = {};
  plan->sequences.clear();
  plan->riders.clear();
  plan->copies.clear();
  plan->samples.clear();
  plan->extras.clear();
  plan->scores.clear();
  plan->masks.clear();

  if (must_drain_ && num_in_flight() > 0) {
    if (observer_ != nullptr) observer_->OnPlan(*plan);
    return;
  }
  must_drain_ = false;
  prefills_.clear();
  prefills_in_flight_.clear();
  ++round_;
  EndExpired(now, outputs);
  blocks_->AdvanceTime(now);
  DropHopeless(now, outputs);
  SpareWaiting();
  WeighHostCopies();
  const double seconds = std::min(absl::ToDoubleSeconds(options_.itl_target), policy_->BeginStep(now, running_));
  do {
    MakePlan(seconds, now, plan);
  } while (plan->empty() && num_in_flight() == 0 && PreemptIdleBeam());

  if (plan->empty() && num_in_flight() == 0 && HasWork()) {
    // Those that run cannot either if blocks are refused although they are unused.
    Sequence* const first = waiting_.empty() ? running_.front() : waiting_.First();
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
  prefills_in_flight_.clear();
  budget_.Reset(options_.max_num_batched_tokens, seconds);
  preempted_ = false;
  if (num_in_flight() > 0) {
    for (Sequence* sequence : running_) {
      if (InFlight(*sequence) && sequence->num_tokens() - sequence->num_computed > 1) {
        prefills_in_flight_.push_back(sequence);
      }
    }
  }
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
      const Sequence& sequence = **waiting;
      const EngineRequest& request = sequence.group->request;
      if (!request.reads_cache) continue;
      if (blocks_->has_host_tier() && !sequence.tokens.empty()) {  // preempted: its output too
        blocks_->Spare(sequence.keys.root, sequence.keys.blocks, sequence.tokens);
      } else {
        blocks_->Spare(request.root_hash, request.prompt_hashes, request.prompt_ids);
      }
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
  plans_prefill_ = false;
  const bool rotate = num_running_ > budget_.tokens() || (offline && budget_.timed());
  if (!rotate) {
    for (size_t i = 0; i < running_.size(); ++i) {
      if (i + kFetchedAhead < running_.size()) FetchAhead(*running_[i + kFetchedAhead]);
      if (running_[i]->offline == offline) PlanRow(running_[i]);
    }
  } else {
    order_.assign(running_.begin(), running_.end());
    std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : Before()(a, b);
    });
    for (Sequence* sequence : order_) {
      if (budget_.tokens() == 0) break;
      const bool decode = sequence->num_uncomputed() == 1;
      if (sequence->offline != offline) continue;
      if (offline && !budget_.HasTimeForRow(sequence->num_planned, decode)) continue;
      PlanRow(sequence);
    }
  }
  CleanUp();
}

// Some must wait: for a plan in flight, with which they may end, or for other beams. Or others have come to see the
// block that is written next: the copy is made once nothing in flight writes to it, so that a table in flight is only
// ever appended to.
void Scheduler::PlanRow(Sequence* sequence) {
  if (sequence->state != SequenceState::kRunning) return;
  const int32_t uncomputed = sequence->num_uncomputed();
  if (uncomputed == 0 || sequence->rides()) return;
  const int32_t foreseen = sequence->num_foreseen();
  if (!blocks_->HoldsAll(sequence->table, foreseen)) {
    if (InFlight(*sequence) && blocks_->NeedsCopy(sequence->table, foreseen)) return;
    if (!MakeRoom(sequence)) return;
  }
  sequence->planned_tokens = 1;
  plans_prefill_ = plans_prefill_ || uncomputed > 1 || sequence->num_planned < sequence->prompt_len;
  budget_.TakeRow(sequence->num_planned, uncomputed == 1);
}

// More tokens for those of a class that are behind by more than one, in order. One at the end of its prompt stands
// among them, for others may ride on it.
void Scheduler::PlanPrefills(bool offline) {
  if (!plans_prefill_) return;
  const size_t first = prefills_.size();
  for (Sequence* sequence : running_) {
    const bool prefill = sequence->num_uncomputed() > 1 || sequence->num_planned < sequence->prompt_len;
    if (prefill && sequence->planned_tokens > 0 && sequence->offline == offline) {
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
        budget_.TakeChunk(sequence->num_planned + 1, sequence->num_uncomputed() - 1, others_want);
  }
}

// What shares have left over.
void Scheduler::PlanLeftover() {
  for (Sequence* sequence : prefills_) {
    if (sequence->state != SequenceState::kRunning) continue;  // interrupted
    const int32_t planned = sequence->planned_tokens;
    sequence->planned_tokens +=
        budget_.TakeChunk(sequence->num_planned + planned, sequence->num_uncomputed() - planned, false);
  }
}

void Scheduler::FillPlan(absl::Time now, SchedulePlan* plan) {
  const size_t num_running = running_.size();  // riders come behind
  undrafted_load_ = {};
  for (size_t i = 0; i < num_running; ++i) {
    Sequence* sequence = running_[i];
    if (i + kFetchedAhead < num_running) FetchAhead(*running_[i + kFetchedAhead]);
    if (sequence->planned_tokens > 0 && CutToPages(sequence)) AddToPlan(sequence, now, plan);
    sequence->planned_tokens = 0;
  }
  if (plan->empty()) return;
  plan->copies.assign(copies_.begin(), copies_.end());
  copies_.clear();
  // What these copies fill is found from now on. If the step fails it is not there, and nobody may have relied on it.
  if (NumHostCopies(*plan) > 0) must_drain_ = true;
  if (blocks_->integrity_enabled()) blocks_->TakeIntegrityWork(&plan->integrity);
  plan->step = ++step_;
  stats_.steps = step_;
}

void Scheduler::AddToPlan(Sequence* sequence, absl::Time now, SchedulePlan* plan) {
  ScheduledSequence& entry = plan->sequences.emplace_back();
  entry.sequence = sequence;
  entry.start = sequence->num_planned;
  entry.num_tokens = sequence->planned_tokens;
  entry.first_row = plan->num_tokens;
  const int32_t end = entry.start + entry.num_tokens;
  if (sequence->wants_scores && sequence->group->next_score_position < sequence->prompt_len) {
    AddScores(*sequence, &entry, plan);
  }
  if (entry.start == sequence->num_tokens()) entry.token_from_sample = sequence->last_sample;
  if (end == sequence->num_foreseen()) entry.sample = AddSample(*sequence, end, entry.last_row(), plan);
  NoteScheduled(sequence, end, entry.sample, now);
  if (sequence->num_drafts > 0) AddDrafts(&entry, plan);
  if (end == sequence->prompt_len) AddRiders(&entry, now, plan);
  plan->num_tokens += entry.num_tokens;
  const bool decode = entry.num_known() == 1 && entry.sample >= 0;
  plan->load.Add(entry.start, entry.num_tokens, decode);
  if (decode && max_drafts_ > 0) undrafted_load_.Add(entry.start, 1, decode);
  sequence->lane->served += entry.num_tokens;
  if (sequence->committed > 0) SetCommitted(sequence, std::max(0, sequence->committed - entry.num_known()));
}

// With layer groups a step may have to end earlier: pages within windows are there for the token behind the computed
// ones only. False if nothing is left of it, which concerns sequences in flight only.
bool Scheduler::CutToPages(Sequence* sequence) {
  const int32_t end = sequence->num_planned + sequence->planned_tokens;
  if (end == sequence->num_computed + 1) return true;
  sequence->planned_tokens = std::max(0, blocks_->ReserveStep(sequence->table, end, &copies_) - sequence->num_planned);
  if (sequence->planned_tokens == 0) must_drain_ = true;
  return sequence->planned_tokens > 0;
}

void Scheduler::NoteScheduled(Sequence* sequence, int32_t num_planned, int32_t sample, absl::Time now) {
  SequenceGroup& group = *sequence->group;
  if (sequence->last_step == 0 && group.first_step == 0) {
    group.first_step = step_ + 1;
    group.scheduled_time = now;
  }
  sequence->num_planned = num_planned;
  sequence->last_sample = sample;
  sequence->last_step = step_ + 1;
  if (sequence->has_siblings) group.last_step = step_ + 1;
}

// The row of position p scores the token at p + 1.
void Scheduler::AddScores(const Sequence& sequence, ScheduledSequence* entry, SchedulePlan* plan) const {
  const SequenceGroup& group = *sequence.group;
  const int32_t end = std::min(entry->start + entry->num_tokens, group.prompt_len() - 1);
  entry->scores_begin = static_cast<int32_t>(plan->scores.size());
  for (int32_t target = std::max(entry->start + 1, group.next_score_position); target <= end; ++target) {
    plan->scores.push_back(
        {entry->first_row + target - 1 - entry->start, sequence.tokens[target], *group.request.params.prompt_logprobs});
  }
  entry->scores_count = static_cast<int32_t>(plan->scores.size()) - entry->scores_begin;
}

// The token behind the first `num_tokens` ones, from the row of the last of them. Returns the index of the sample.
int32_t Scheduler::AddSample(const Sequence& sequence, int32_t num_tokens, int32_t logits_row,
                             SchedulePlan* plan) const {
  SampleRow& row = plan->samples.emplace_back(sequence.sample_row);
  row.logits_row = logits_row;
  row.output_position = static_cast<uint32_t>(num_tokens - sequence.prompt_len);
  if (sequence.wants_extras) AddExtras(sequence, num_tokens, plan);
  return static_cast<int32_t>(plan->samples.size()) - 1;
}

// To the latest sample. A beam search bans ids itself.
void Scheduler::AddExtras(const Sequence& sequence, int32_t num_tokens, SchedulePlan* plan) const {
  if (plan->extras.empty()) plan->extras.reserve(max_samples());  // so that they stay where they are
  QUIRE_CHECK(plan->extras.size() < plan->extras.capacity());
  const SequenceGroup& group = *sequence.group;
  const SamplingParams& params = group.request.params;
  SampleRow& row = plan->samples.back();
  SampleExtras& extras = plan->extras.emplace_back();
  row.more = &extras;
  const bool below_min = static_cast<int32_t>(row.output_position) < params.min_tokens;
  if (below_min && group.beams == nullptr) extras.banned_ids = group.ending_ids;
  extras.rules = params.rules.get();
  if (extras.rules == nullptr) return;
  extras.mirostat_bound = sequence.mirostat_bound;
  if (extras.rules->sees_tokens()) {  // all of them are there: none is in flight (needs_output)
    const bool drafts = num_tokens > sequence.num_tokens();
    extras.tokens = drafts ? sequence.speculation->text().first(num_tokens) : absl::MakeConstSpan(sequence.tokens);
    extras.prompt_len = sequence.prompt_len;
  }
}

}  // namespace quire
