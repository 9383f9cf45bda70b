// What the host tier adds to the scheduler: when copies to it are worth their time, and what becomes of a failed one.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {

// Of tokens that are in no cache; infinite as long as nothing is known.
double Scheduler::ComputeSeconds(int32_t start, int32_t num_tokens) const {
  const double seconds =
      step_time_.ready() ? step_time_.ChunkSeconds(start, num_tokens, false) / step_time_.margin() : 0;
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

// A block that goes to the host is to come back: two copies. Tokens at the beginning are the cheapest to compute. As
// long as nobody knows what a copy costs, a plan makes no more of them than it takes to learn it.
void Scheduler::WeighHostCopies() {
  if (!blocks_->has_host_tier() || options_.preemption == PreemptionMode::kSwap) return;
  const double copy = host_copy_cost_.seconds_per_block() * blocks_->places_per_block();
  const double compute = ComputeSeconds(0, blocks_->block_size());
  HostUse use = {.fetch = copy <= compute};
  if (2 * copy > compute) {
    use.max_demotions = 0;
  } else if (!host_copy_cost_.known()) {
    use.max_demotions = 1;
  }
  blocks_->SetHostUse(use);
}

bool Scheduler::IsSwapWorthwhile(const Sequence& sequence) const {
  if (!blocks_->has_host_tier() || options_.preemption == PreemptionMode::kRecompute) return false;
  if (options_.preemption == PreemptionMode::kSwap) return true;
  const int32_t start = FirstOwnBlock(sequence) * blocks_->block_size();
  const double recompute = ComputeSeconds(start, std::max(0, sequence.num_computed - start));
  return 2 * BlocksToSwap(sequence) * host_copy_cost_.seconds_per_block() <= recompute;
}

// Of one that the cache must not know also those that it shares: they stay in its table.
int32_t Scheduler::BlocksToSwap(const Sequence& sequence) const {
  if (UsesCache(sequence)) return OwnBlocks(sequence);
  return blocks_->NumPlaces(sequence.table, 0, blocks_->BlocksFor(sequence.table.num_stored()));
}

// What copying a sequence to the host and back is worth in tokens computed, at least one a block. Where the cache knows
// it, those that the requester needs go now, and the rest perhaps.
double Scheduler::TokensOfSwap(const Sequence& sequence, int32_t needed_blocks) const {
  const int32_t block_size = blocks_->block_size(), all = BlocksToSwap(sequence);
  const double compute = ComputeSeconds(std::max(0, sequence.num_computed - block_size), block_size) / block_size;
  const double each = std::max(1.0, 2 * host_copy_cost_.seconds_per_block() / compute);
  const int32_t now = UsesCache(sequence) ? std::min(all, needed_blocks) : all;
  return each * (now + kFindableLoss * (all - now));
}

// Lets a sequence go that is going to wait. What the prefix cache may keep stands there, and moves to the host when its
// room on the device is needed; the blocks of others move there at once, and stay in their table.
void Scheduler::ReleaseForLater(Sequence* sequence) {
  BlockTable& table = sequence->table;
  if (table.empty()) return;
  bool swap = IsSwapWorthwhile(*sequence);
  if (swap && !UsesCache(*sequence)) swap = !IsIdleBeam(*sequence) && blocks_->SwapOut(table, &copies_);
  stats_.swaps += swap;
  if (swap && !UsesCache(*sequence)) return;
  if (blocks_->has_host_tier() && !swap) {
    blocks_->Seal(table, sequence->tokens, sequence->keys);
    blocks_->KeepOffHost(table);
  }
  ReleaseBlocks(sequence);
}

bool Scheduler::UsesCache(const Sequence& sequence) const {
  return blocks_->prefix_cache_enabled() && sequence.keys.read && sequence.keys.write;
}

int64_t Scheduler::NumHostCopies(const SchedulePlan& plan) const {
  if (!blocks_->has_host_tier()) return 0;
  return std::count_if(plan.copies.begin(), plan.copies.end(), [this](const BlockCopy& copy) {
    return blocks_->IsHost(copy.src) || blocks_->IsHost(copy.dst);
  });
}

// Returns the part of the step's time that they took.
double Scheduler::LearnHostCopies(const SchedulePlan& plan, const StepResult& result) {
  if (!blocks_->has_host_tier()) return 0;
  host_copy_cost_.Learn(NumHostCopies(plan), result.host_copy_seconds);
  return result.host_copy_seconds;
}

// What the copies of a failed step were to fill holds anything: nobody finds it, and those who hold it and were not in
// the step begin again, or end too if the step in flight reads it. REQUIRES: those who were hold nothing any more.
void Scheduler::DropFailedCopies(const SchedulePlan& plan, const absl::Status& status, absl::Time now,
                                 StepOutputs* outputs) {
  if (plan.copies.empty()) return;
  QUIRE_CHECK(num_in_flight() == 0 || NumHostCopies(plan) == 0);
  blocks_->CopiesFailed(plan.copies);
  absl::flat_hash_set<BlockId> failed;
  for (const BlockCopy& copy : plan.copies) failed.insert(copy.dst);
  for (Sequence* sequence : running_) {
    if (sequence->state != SequenceState::kRunning || !blocks_->HoldsAny(sequence->table, failed)) continue;
    if (InFlight(*sequence)) {
      EndGroup(sequence->group, FinishReason::kError, status, now, outputs);
    } else {
      sequence->table.Clear();  // without sealing anything
      Preempt(sequence, PreemptReason::kLostCopy, nullptr);
    }
  }
  std::vector<Sequence*> holders;
  for (const auto& [handle, group] : groups_) {
    for (Sequence& sequence : group->sequences) {
      if (sequence.state != SequenceState::kRunning && blocks_->HoldsAny(sequence.table, failed))
        holders.push_back(&sequence);
    }
  }
  // In one order every time: who gives blocks back first decides which are taken next, which a replay must find again.
  std::sort(holders.begin(), holders.end(), [](const Sequence* a, const Sequence* b) {
    return std::pair(a->group->arrival_number, a->index) < std::pair(b->group->arrival_number, b->index);
  });
  for (Sequence* sequence : holders) sequence->table.Clear();
}

}  // namespace quire
