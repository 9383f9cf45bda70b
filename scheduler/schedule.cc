#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr float kGreedyBelow = 1e-5f;  // SamplingParams::temperature
constexpr int32_t kSparedRequests = 8;

// A prefill's part of the tokens that are left, so that one long prompt does not keep the others from starting.
int32_t Share(int32_t budget, bool others_want) { return others_want ? (budget + 1) / 2 : budget; }

}  // namespace

void Scheduler::Schedule(absl::Time now, SchedulePlan* plan, StepOutputs* outputs) {
  QUIRE_CHECK(!in_flight_);
  plan->step = 0;
  plan->num_tokens = 0;
  plan->sequences.clear();
  plan->copies.clear();
  plan->samples.clear();
  plan->scores.clear();
  budget_ = options_.max_num_batched_tokens;
  preempted_ = false;

  DropExpired(now, outputs);
  blocks_->AdvanceTime(now);
  SpareWaiting();
  copies_ = &plan->copies;
  PlanRunning();
  PlanPrefills();
  // After a preemption there is no room, and to admit the victim again would undo it.
  if (!preempted_) Admit();
  PlanLeftover();
  FillPlan(now, plan);

  if (plan->empty() && HasWork()) {
    Sequence* const first = NextWaiting();
    QUIRE_CHECK(first != nullptr);
    const absl::Status status = absl::ResourceExhaustedError(
        absl::StrFormat("no request can advance: %d of %d KV blocks are unused and none is released by waiting",
                        blocks_->num_unused(), blocks_->num_usable()));
    EndGroup(first->group, FinishReason::kError, status, now, outputs);
    CleanUp();
  }
}

// What those that wait will find in the cache shall not go for others: looked at again whenever something went.
void Scheduler::SpareWaiting() {
  if (waiting_.empty() || evictions_seen_ == blocks_->num_evictions()) return;
  evictions_seen_ = blocks_->num_evictions();
  int32_t left = kSparedRequests;
  for (auto waiting = waiting_.begin(); waiting != waiting_.end() && left > 0; ++waiting, --left) {
    const EngineRequest& request = (*waiting)->group->request;
    if (request.reads_cache) blocks_->Spare(request.root_hash, request.prompt_hashes, request.prompt_ids);
  }
}

// One token for each running sequence. With more of them than tokens, those longest without a turn come first.
void Scheduler::PlanRunning() {
  order_.assign(running_.begin(), running_.end());
  if (num_running_ > budget_) {
    std::sort(order_.begin(), order_.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_step != b->last_step ? a->last_step < b->last_step : Before()(a, b);
    });
  }
  for (Sequence* sequence : order_) sequence->planned_tokens = 0;
  for (Sequence* sequence : order_) {
    if (budget_ == 0) break;
    if (sequence->state != SequenceState::kRunning || !MakeRoom(sequence)) continue;
    sequence->planned_tokens = 1;
    --budget_;
  }
  CleanUp();
}

// More tokens for those that are behind by more than one, in order of rank.
void Scheduler::PlanPrefills() {
  prefills_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->planned_tokens > 0 && sequence->num_uncomputed() > 1) prefills_.push_back(sequence);
  }
  std::sort(prefills_.begin(), prefills_.end(), Before());
  for (size_t i = 0; i < prefills_.size(); ++i) {
    const bool others_want = i + 1 < prefills_.size() || !waiting_.empty();
    const int32_t more = std::min(prefills_[i]->num_uncomputed() - 1, Share(budget_, others_want));
    prefills_[i]->planned_tokens += more;
    budget_ -= more;
  }
}

void Scheduler::Admit() {
  while (budget_ > 0 && num_running_ < options_.max_num_seqs) {
    Sequence* sequence = NextWaiting();
    if (sequence == nullptr || !TryAdmit(sequence)) return;
    sequence->planned_tokens = std::min(sequence->num_uncomputed(), Share(budget_, !waiting_.empty()));
    budget_ -= sequence->planned_tokens;
    prefills_.push_back(sequence);
  }
}

// What shares have left over.
void Scheduler::PlanLeftover() {
  for (Sequence* sequence : prefills_) {
    const int32_t more = std::min(sequence->num_uncomputed() - sequence->planned_tokens, budget_);
    sequence->planned_tokens += more;
    budget_ -= more;
  }
}

// Blocks for all that is known of a running sequence, if need be at the cost of others, or of itself: then false.
bool Scheduler::MakeRoom(Sequence* sequence) {
  while (blocks_->BlocksMissing(sequence->table, sequence->num_tokens()) > blocks_->num_unused()) {
    Sequence* victim = PickVictim(sequence);
    Preempt(victim != nullptr ? victim : sequence);
    if (victim == nullptr) return false;
  }
  QUIRE_CHECK(blocks_->Reserve(sequence->table, sequence->num_tokens(), copies_).ok());
  return true;
}

// Among those ranked after the requester whose preemption frees a block now: the lowest priority, then the least work
// lost, then the last in rank. The first in rank is never a victim, so it always advances.
Sequence* Scheduler::PickVictim(const Sequence* requester) const {
  Sequence* best = nullptr;
  int32_t best_lost = 0;
  for (Sequence* candidate : running_) {
    if (candidate->state != SequenceState::kRunning || !Before()(requester, candidate)) continue;
    const absl::Span<const BlockId> held = candidate->table.blocks();
    const auto own = std::find_if(held.begin(), held.end(), [this](BlockId b) { return blocks_->count(b) == 1; });
    if (own == held.end()) continue;
    const auto shared_tokens = static_cast<int32_t>(own - held.begin()) * blocks_->block_size();
    const int32_t lost = std::max(0, candidate->num_computed - shared_tokens);
    const int32_t priority = candidate->group->request.priority;
    const int32_t best_priority = best == nullptr ? 0 : best->group->request.priority;
    if (best == nullptr || priority > best_priority ||
        (priority == best_priority && (lost < best_lost || (lost == best_lost && Before()(best, candidate))))) {
      best = candidate;
      best_lost = lost;
    }
  }
  return best;
}

void Scheduler::Preempt(Sequence* sequence) {
  budget_ += sequence->planned_tokens;
  sequence->planned_tokens = 0;
  ReleaseBlocks(sequence);
  sequence->num_computed = 0;
  SetState(sequence, SequenceState::kWaiting);
  ++sequence->group->num_preemptions;
  ++stats_.preemptions;
  preempted_ = true;
}

Sequence* Scheduler::NextWaiting() const {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [](const Sequence* s) { return !s->group->held; });
  return found == waiting_.end() ? nullptr : *found;
}

// Blocks for all that is known, cached ones first. Some stay unused for those that run already.
bool Scheduler::TryAdmit(Sequence* sequence) {
  Start(sequence);
  SequenceGroup& group = *sequence->group;
  const bool all_scored = group.next_score_position == group.prompt_len();
  const int32_t known = sequence->num_tokens();
  // The row before a position scores it: rows of scores still to be given are computed.
  const int32_t cacheable = all_scored ? known - 1 : group.next_score_position - 1;
  const PrefixMatch match = blocks_->MatchPrefix(sequence->keys, sequence->tokens, cacheable, sequence->table);
  const int32_t kept_unused = num_running_ == 0 ? 0 : blocks_->num_usable() / 100;
  if (blocks_->BlocksMissing(sequence->table, known) + kept_unused > blocks_->num_unused()) {
    sequence->table.Clear();
    return false;
  }
  QUIRE_CHECK(blocks_->Reserve(sequence->table, known, copies_).ok());
  sequence->num_computed = match.num_tokens;
  SetState(sequence, SequenceState::kRunning);
  if (!group.admitted) {
    group.admitted = true;
    group.prefix_match = match;
    group.cached_tokens = match.num_tokens;
    stats_.prompt_tokens += group.prompt_len();
    const bool asked = all_scored && blocks_->prefix_cache_enabled() && group.request.reads_cache;
    stats_.prefix_query_tokens += asked ? group.prompt_len() : 0;
    stats_.prefix_hit_tokens += match.num_tokens;
  }
  return true;
}

// Storage for the whole life of a sequence: only those that were admitted once hold it.
void Scheduler::Start(Sequence* sequence) {
  if (!sequence->tokens.empty()) return;
  const SequenceGroup& group = *sequence->group;
  const int32_t max_blocks = blocks_->BlocksFor(group.max_len);
  sequence->tokens.reserve(group.max_len);
  sequence->tokens.assign(group.request.prompt_ids.begin(), group.request.prompt_ids.end());
  sequence->keys.root = group.request.root_hash;
  sequence->keys.tenant = group.request.tenant;
  sequence->keys.read = group.request.reads_cache;
  sequence->keys.write = group.request.writes_cache;
  sequence->keys.retention = group.request.retention;
  sequence->keys.blocks.reserve(max_blocks);
  sequence->keys.blocks.assign(group.request.prompt_hashes.begin(), group.request.prompt_hashes.end());
  sequence->table.ReserveCapacity(max_blocks);
}

void Scheduler::FillPlan(absl::Time now, SchedulePlan* plan) {
  for (Sequence* sequence : running_) {
    if (sequence->planned_tokens == 0) continue;
    ScheduledSequence entry;
    entry.sequence = sequence;
    entry.start = sequence->num_computed;
    entry.num_tokens = sequence->planned_tokens;
    entry.first_row = plan->num_tokens;
    AddRows(*sequence, &entry, plan);
    plan->sequences.push_back(entry);
    plan->num_tokens += entry.num_tokens;

    SequenceGroup& group = *sequence->group;
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
  if (static_cast<int64_t>(row.output_position) < params.min_tokens) row.banned_ids = group.ending_ids;
  plan->samples.push_back(row);
}

}  // namespace quire
