#include <algorithm>

#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {

// Blocks for all that is known of a running sequence, if need be at the cost of others, or of itself: then false.
bool Scheduler::MakeRoom(Sequence* sequence) {
  const int32_t known = sequence->num_foreseen();
  while (true) {
    const int32_t lacking = blocks_->BlocksMissing(sequence->table, known) - blocks_->num_unused();
    if (lacking <= 0) break;
    if (!MayPreempt()) return false;
    Sequence* victim = PickVictim(sequence, Eligible::kRankedAfter, lacking);
    if (victim == nullptr) {
      Preempt(sequence, PreemptReason::kLastInRank, nullptr);
      return false;
    }
    Preempt(victim, PreemptReason::kBlocks, sequence);
  }
  return blocks_->Reserve(sequence->table, known, &copies_).ok();  // if not, it keeps what it has and tries again
}

// A sequence in flight is never preempted. Whoever wants that waits for a plan that is made with nothing in flight,
// which the next one will be; nothing starts in the meantime.
bool Scheduler::MayPreempt() {
  if (num_in_flight() == 0) return true;
  must_drain_ = preempted_ = true;
  return false;
}

// Stops what may be interrupted until the sequence, whose table holds what was found in the cache, gets its blocks.
// Nothing is stopped if that would not be enough.
bool Scheduler::InterruptForBlocks(Sequence* sequence) {
  if (!AnyInterruptible(*sequence)) return false;
  const auto lacking = [this, sequence] {
    return blocks_->BlocksMissing(sequence->table, sequence->num_tokens()) + BlocksKept() - blocks_->num_unused();
  };
  int64_t releasable = 0;
  for (const Sequence* victim : running_) {
    if (IsEligible(*victim, *sequence, Eligible::kInterruptible)) releasable += OwnBlocks(*victim);
  }
  if (releasable < lacking() || !MayPreempt()) return false;
  while (lacking() > 0) {
    Sequence* victim = PickVictim(sequence, Eligible::kInterruptible, lacking());
    if (victim == nullptr) break;
    Preempt(victim, PreemptReason::kUrgentBlocks, sequence);
  }
  CleanUp();
  return lacking() <= 0;
}

// Whether any running sequence may be of a worse class or priority: cheap, for each step that something waits.
bool Scheduler::AnyInterruptible(const Sequence& urgent) const {
  if (running_levels_.empty()) return false;
  const EngineRequest& request = urgent.group->request;
  return std::make_pair(request.offline, request.priority) < running_levels_.rbegin()->first;
}

bool Scheduler::IsEligible(const Sequence& victim, const Sequence& requester, Eligible eligible) const {
  if (victim.state != SequenceState::kRunning) return false;
  // It can do nothing before the requester has advanced.
  if (victim.group == requester.group && IsIdleBeam(victim)) return true;
  if (!Before()(&requester, &victim)) return false;
  if (eligible == Eligible::kRankedAfter) return true;
  const SequenceGroup &urgent = *requester.group, &group = *victim.group;
  if (urgent.offline != group.offline) return group.offline;
  return policy_->MayInterrupt(urgent, group);
}

// How many leading blocks of it others hold too.
int32_t Scheduler::FirstOwnBlock(const Sequence& sequence) const {
  const absl::Span<const BlockId> held = sequence.table.blocks();
  const auto own = std::find_if(held.begin(), held.end(), [this](BlockId b) { return blocks_->count(b) == 1; });
  return static_cast<int32_t>(own - held.begin());
}

// Blocks (pages) that preempting it makes unused at once.
int32_t Scheduler::OwnBlocks(const Sequence& sequence) const {
  return blocks_->NumPlaces(sequence.table, FirstOwnBlock(sequence), sequence.table.size());
}

// In tokens: those to compute again, or what copies to the host and back are worth, whichever is less.
double Scheduler::LostWork(const Sequence& sequence, int32_t needed_blocks) const {
  const double recompute = RecomputedTokens(sequence, needed_blocks);
  if (!blocks_->has_host_tier() || options_.preemption == PreemptionMode::kRecompute) return recompute;
  const double copies = TokensOfSwap(sequence, needed_blocks);
  return options_.preemption == PreemptionMode::kSwap ? copies : std::min(recompute, copies);
}

// Weighed by how likely that is: what nobody finds once it is dropped, what the requester is going to take of the rest,
// and a part of what then stays in the prefix cache.
double Scheduler::RecomputedTokens(const Sequence& sequence, int32_t needed_blocks) const {
  const int32_t block_size = blocks_->block_size();
  const int32_t shared = FirstOwnBlock(sequence);
  const int32_t findable =
      std::max(0, std::min(sequence.table.num_published(), sequence.num_computed / block_size) - shared);
  const int32_t unpublished = sequence.table.size() - shared - findable;
  const int32_t taken = std::clamp(needed_blocks - unpublished, 0, findable);
  const int32_t gone = std::max(0, sequence.num_computed - (shared + findable) * block_size);
  return gone + block_size * (taken + kFindableLoss * (findable - taken));
}

// Of those that may be stopped for the requester and whose stopping helps it now: offline before online, the lowest
// priority, then the least work lost, then the last in rank. The first in order is never a victim, so it always
// advances.
Sequence* Scheduler::PickVictim(const Sequence* requester, Eligible eligible, int32_t needed_blocks) const {
  const auto level = [](const Sequence& s) { return std::make_pair(s.group->offline, s.group->request.priority); };
  Sequence* best = nullptr;
  double best_lost = 0;
  for (Sequence* candidate : running_) {
    if (!IsEligible(*candidate, *requester, eligible)) continue;
    if (best != nullptr && level(*candidate) < level(*best)) continue;
    if (needed_blocks > 0 && OwnBlocks(*candidate) == 0) continue;
    const double lost = LostWork(*candidate, needed_blocks);
    if (best == nullptr || level(*best) < level(*candidate) || lost < best_lost ||
        (lost == best_lost && Before()(best, candidate))) {
      best = candidate;
      best_lost = lost;
    }
  }
  return best;
}

// It keeps its rank, and with it its place.
void Scheduler::Preempt(Sequence* sequence, PreemptReason reason, const Sequence* requester) {
  if (observer_ != nullptr) observer_->OnPreempted(*sequence, requester, reason);
  budget_.Return(sequence->planned_tokens);
  sequence->planned_tokens = 0;
  ReleaseForLater(sequence);
  const bool idle = IsIdleBeam(*sequence);
  sequence->num_computed = sequence->num_planned = 0;
  sequence->probed_step = 0;
  SetState(sequence, idle ? SequenceState::kBlocked : SequenceState::kWaiting);
  ++sequence->group->num_preemptions;
  ++stats_.preemptions;
  preempted_ = true;
}

}  // namespace quire
