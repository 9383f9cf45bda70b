#include <algorithm>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int32_t kWaitingLookedAt = 64;  // for equal prompts, at the head of the producer's lane

}  // namespace

// Whether both have the same prompt, nothing beyond it, and may share it: then one row gives the first token of both.
bool Scheduler::MayRide(const Sequence& sequence, const Sequence& producer) const {
  const SequenceGroup &group = *sequence.group, &other = *producer.group;
  const EngineRequest &a = group.request, &b = other.request;
  if (a.root_hash != b.root_hash || !a.reads_cache || !blocks_->MayBeFound(producer.table, producer.keys)) return false;
  if (group.lane != other.lane || a.offline != b.offline) return false;
  if (group.next_score_position < group.prompt_len() || sequence.has_output() || producer.has_output()) return false;
  if (!sequence.table.empty()) return false;  // swapped out
  // Unequal ones mostly differ in the last key, or else behind it.
  return a.prompt_ids.size() == b.prompt_ids.size() &&
         (a.prompt_hashes.empty() || a.prompt_hashes.back() == b.prompt_hashes.back()) &&
         std::equal(a.prompt_ids.rbegin(), a.prompt_ids.rend(), b.prompt_ids.rbegin());
}

// The plan computes a prompt's last row. Sequences that sample their first token from it: the others of the request,
// and waiting ones with the same prompt.
void Scheduler::AddRiders(ScheduledSequence* entry, absl::Time now, SchedulePlan* plan) {
  const Sequence& producer = *entry->sequence;
  if (entry->sample < 0 || producer.has_output()) return;
  entry->riders_begin = static_cast<int32_t>(plan->riders.size());
  RideSiblings(producer.group, entry->last_row(), now, plan);
  RideEqualPrompts(producer, entry->last_row(), now, plan);
  entry->riders_count = static_cast<int32_t>(plan->riders.size()) - entry->riders_begin;
}

// Those of a beam search fork when they are needed.
void Scheduler::RideSiblings(SequenceGroup* group, int32_t logits_row, absl::Time now, SchedulePlan* plan) {
  if (group->beams != nullptr) return;
  for (Sequence& sibling : group->sequences) {
    if (num_running_ == options_.max_num_seqs) return;
    if (sibling.state == SequenceState::kBlocked) Ride(&sibling, logits_row, now, plan);
  }
}

// Those that found no place compute the prompt again when their turn comes.
void Scheduler::WakeSiblings(SequenceGroup* group) {
  if (group->beams != nullptr) return;
  for (Sequence& sibling : group->sequences) {
    if (sibling.state == SequenceState::kBlocked) SetState(&sibling, SequenceState::kWaiting);
  }
}

// They start as any other does, but need no tokens of the step.
void Scheduler::RideEqualPrompts(const Sequence& producer, int32_t logits_row, absl::Time now, SchedulePlan* plan) {
  const bool offline = producer.group->offline;
  if (preempted_ || (offline && waiting_.has_online())) return;
  const int32_t max_overtakes = policy_->window().max_overtakes;
  const Sequence* passed = nullptr;  // the first in rank that does not ride
  int32_t left = kWaitingLookedAt;
  auto& waiting = producer.group->lane->waiting[offline];
  for (auto next = waiting.begin(); next != waiting.end() && left > 0; --left) {
    Sequence* sequence = *next++;  // before it leaves the queue
    if (passed != nullptr && !policy_->MayOvertake(*sequence->group, *passed->group)) return;
    if (MayRide(*sequence, producer)) {
      if (!HasRoomToRide(*sequence, *plan)) return;
      sequence->probed_hit = sequence->group->prompt_len() - 1;
      if (!policy_->MayStart(*sequence) || !budget_.TakeStanding(sequence->group->prompt_len())) return;
      Ride(sequence, logits_row, now, plan);
      if (observer_ != nullptr) observer_->OnAdmitted(*sequence, {.num_tokens = sequence->probed_hit});
      NoteStart(*sequence);
      RideSiblings(sequence->group, logits_row, now, plan);
    } else {
      if (sequence->num_overtaken >= max_overtakes) return;
      if (passed == nullptr) passed = sequence;
    }
  }
}

// A place, and blocks for the first token of each that rides: they are taken in the next step.
bool Scheduler::HasRoomToRide(const Sequence& sequence, const SchedulePlan& plan) const {
  const int32_t prompt_len = sequence.group->prompt_len();
  const int64_t each = blocks_->LeastMissing(prompt_len + 1, prompt_len / blocks_->block_size());
  const auto riders = static_cast<int64_t>(plan.riders.size()) + 1;
  return num_running_ < options_.max_num_seqs && riders * each + BlocksKept() <= blocks_->num_unused();
}

void Scheduler::Ride(Sequence* sequence, int32_t logits_row, absl::Time now, SchedulePlan* plan) {
  Start(sequence);
  SetState(sequence, SequenceState::kRunning);
  SetCommitted(sequence, sequence->committed - sequence->num_uncomputed());  // another computes these
  const int32_t sample = AddSample(*sequence, sequence->num_tokens(), logits_row, plan);
  NoteScheduled(sequence, sequence->num_tokens(), sample, now);
  plan->riders.push_back({sequence, sample});
}

// The prompt is computed: all blocks are shared from now on, and a part-filled last one is copied by whoever writes on.
void Scheduler::ForkForRiders(Sequence* producer, absl::Span<const PlanRider> riders) {
  if (riders.empty()) return;
  blocks_->Seal(producer->table, producer->tokens, producer->keys);
  for (const PlanRider& rider : riders) {
    Sequence* sequence = rider.sequence;
    if (!sequence->rides()) continue;  // ended while the step was in flight
    sequence->table = blocks_->Fork(producer->table, producer->num_computed);
    sequence->num_computed = sequence->table.num_stored();
    if (sequence->group != producer->group) blocks_->CountAsHit(sequence->table);
    sequence->table.ReserveCapacity(blocks_->BlocksFor(sequence->group->max_len));
  }
}

// Those that got nothing wait again and compute the prompt themselves.
void Scheduler::SendBack(absl::Span<const PlanRider> riders) {
  for (const PlanRider& rider : riders) {
    if (!rider.sequence->rides()) continue;
    rider.sequence->num_planned = 0;
    rider.sequence->probed_step = 0;
    SetState(rider.sequence, SequenceState::kWaiting);
  }
}

}  // namespace quire
