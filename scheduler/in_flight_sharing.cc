#include <algorithm>

#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int32_t kMinShared = 32;  // tokens that are worth a step of waiting

// Leading blocks that two sequences have in common. Keys are chained: an equal one means that all before are equal too.
int32_t SharedBlocks(const PrefixKeys& a, const PrefixKeys& b) {
  int32_t shared = 0, differ = static_cast<int32_t>(std::min(a.blocks.size(), b.blocks.size()));
  if (differ > 0 && a.blocks[0] != b.blocks[0]) return 0;
  while (shared < differ) {
    const int32_t middle = shared + (differ - shared) / 2;
    (a.blocks[middle] == b.blocks[middle] ? shared = middle + 1 : differ = middle);
  }
  return shared;
}

// Leading tokens in common, those of the first block that differs included.
int32_t SharedTokens(const Sequence& a, const Sequence& b, int32_t block_size) {
  const int32_t from = SharedBlocks(a.keys, b.keys) * block_size;
  const int32_t to = std::min({from + block_size, a.num_tokens(), b.num_tokens()});
  const auto begin = a.tokens.begin() + from;
  const auto parted = std::mismatch(begin, a.tokens.begin() + to, b.tokens.begin() + from).first;
  return from + static_cast<int32_t>(parted - begin);
}

}  // namespace

// Whether a waiting sequence, whose probe is done, leaves its next tokens to one that computes them in this plan. It
// holds nothing meanwhile. Once the step is committed it is matched again, so nothing depends on what becomes of the
// other.
bool Scheduler::Follows(Sequence* sequence) {
  if (IsFollowing(*sequence)) return true;
  if (num_in_flight() > 0 && sequence->following_round == round_ - 1) {  // what it waited for may be there yet, or not
    sequence->probed_step = 0;
    Probe(sequence);
  }
  if (prefills_.empty() && prefills_in_flight_.empty()) return false;
  if (!blocks_->prefix_cache_enabled() || !sequence->keys.read || !sequence->table.empty()) return false;
  const Offer offer = BestOffer(*sequence);
  if (offer.producer == nullptr || !IsWorthWaiting(*sequence, offer)) return false;
  if (!offer.rides && sequence->following_round != round_ - 1 &&
      sequence->probed_step != step_ + 1) {  // more may be in the cache by now
    sequence->probed_step = 0;
    Probe(sequence);
    if (!IsWorthWaiting(*sequence, offer)) return false;
  }
  sequence->following_round = round_;
  sequence->probed_hit = std::max(sequence->probed_hit, offer.reach);
  if (observer_ != nullptr) observer_->OnFollows(*sequence, *offer.producer, offer.reach);

  Sequence* producer = offer.producer;
  const bool first = producer->followed_step != step_ + 1;
  producer->followed_step = step_ + 1;
  producer->least_awaited = first ? offer.end : std::min(producer->least_awaited, offer.end);
  producer->most_awaited = first ? offer.end : std::max(producer->most_awaited, offer.end);
  return true;
}

// Of the prefills planned so far or in flight, the one that gets furthest in what the sequence is missing.
Scheduler::Offer Scheduler::BestOffer(const Sequence& sequence) const {
  const int32_t block_size = blocks_->block_size();
  Offer best;
  const auto consider = [&](Sequence* producer) {
    const int32_t planned_end = producer->num_planned + producer->planned_tokens;
    if (producer->keys.root != sequence.keys.root || !producer->keys.write || planned_end == producer->num_computed ||
        producer->state != SequenceState::kRunning) {
      return;
    }
    if (producer->table.num_published() < producer->num_computed / block_size) return;  // the cache takes no more
    int32_t end = std::min(SharedTokens(sequence, *producer, block_size), CacheableTokens(sequence));
    if (end % block_size < blocks_->LeastTokensOf(end / block_size)) end -= end % block_size;
    const int32_t reach = std::min(end, planned_end);
    if (producer->num_computed < end && reach > best.reach) best = {producer, reach, end};
  };
  for (Sequence* producer : prefills_) {
    const bool ends = producer->num_planned + producer->planned_tokens == producer->num_tokens();
    if (ends && MayRide(sequence, *producer))
      return {producer, CacheableTokens(sequence), CacheableTokens(sequence), true};
  }
  for (Sequence* producer : prefills_in_flight_) consider(producer);
  for (Sequence* producer : prefills_) consider(producer);
  return best;
}

// Riding costs nothing. Otherwise waiting gives at least what the sequence would compute itself, or at least half of it
// if that is all it will ever get.
bool Scheduler::IsWorthWaiting(const Sequence& sequence, const Offer& offer) const {
  if (offer.rides) return true;
  const int32_t gain = offer.reach - sequence.probed_hit;
  const bool goes_on = sequence.following_round == round_ - 1;
  if (gain <= 0 || (!goes_on && offer.end - sequence.probed_hit < kMinShared)) return false;
  const int32_t own = OwnChunk(sequence);
  return gain >= own || (offer.reach == offer.end && 2 * gain >= own);
}

// What the sequence would get in a step by itself: from what is left of this one or, from the next on, the share of one
// that ranks after it.
int32_t Scheduler::OwnChunk(const Sequence& sequence) const {
  const int32_t want = sequence.num_tokens() - sequence.probed_hit;
  int32_t chunk = StepBudget(budget_).TakeChunk(sequence.probed_hit, want, waiting_.size() > 1);
  for (const Sequence* other : prefills_) {
    if (other->planned_tokens > chunk && Before()(&sequence, other)) chunk = other->planned_tokens;
  }
  return std::min(chunk, want);
}

// What followers want of the part-filled last block, once nothing more is to come: they will copy it, and so will the
// producer before it writes on.
void Scheduler::SealForFollowers(Sequence* producer) {
  const int32_t full = producer->num_computed / blocks_->block_size() * blocks_->block_size();
  if (producer->least_awaited > producer->num_computed || producer->most_awaited <= full) return;
  blocks_->Seal(producer->table, producer->tokens, producer->keys);
}

}  // namespace quire
