// A request that goes on from another one: it takes the blocks of a running sequence instead of finding them.

#include <algorithm>
#include <utility>

#include "scheduler/scheduler.h"

namespace quire {

// The running sequence that a waiting one is forked from, and how many of its leading tokens that one has stored.
Scheduler::ForkSource Scheduler::FindForkSource(const Sequence& sequence) const {
  const EngineRequest& request = sequence.group->request;
  const SequenceGroup* from = request.fork_of.handle == 0 ? nullptr : Find(request.fork_of.handle);
  if (from == nullptr || from->request.root_hash != request.root_hash) return {};
  const int32_t index = request.fork_of.sequence_index;
  if (index < 0 || index >= static_cast<int32_t>(from->sequences.size())) return {};
  const Sequence& parent = from->sequences[index];
  if (parent.state != SequenceState::kRunning) return {};
  const int32_t most = std::min(parent.table.num_stored(), CacheableTokens(sequence));
  if (most <= 0) return {};
  const auto begin = sequence.tokens.begin();
  const auto shared = std::mismatch(begin, begin + most, parent.tokens.begin()).first - begin;
  return {&parent, static_cast<int32_t>(shared)};
}

// The cached or forked blocks for the beginning of a sequence, whichever reach further.
PrefixMatch Scheduler::TakePrefix(Sequence* sequence) {
  PrefixMatch match =
      blocks_->MatchPrefix(sequence->keys, sequence->tokens, CacheableTokens(*sequence), sequence->table);
  const ForkSource source = FindForkSource(*sequence);
  if (source.num_tokens <= match.num_tokens) return match;
  // With layer groups there is nothing to fork if what a window shows at that token is gone.
  BlockTable forked = blocks_->Fork(source.parent->table, source.num_tokens);
  if (forked.empty()) return match;
  sequence->table.Clear();
  sequence->table = std::move(forked);
  sequence->table.ReserveCapacity(blocks_->BlocksFor(sequence->group->max_len));
  return {.num_tokens = source.num_tokens, .partial_tokens = source.num_tokens % blocks_->block_size()};
}

}  // namespace quire
