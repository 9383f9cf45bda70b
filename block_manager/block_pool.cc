#include "block_manager/block_pool.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "block_manager/block_table.h"
#include "kernels/base/check.h"

namespace quire {

BlockPool::BlockPool(int32_t num_blocks, EvictFn on_evict, void* context)
    : nodes_(num_blocks), on_evict_(on_evict), context_(context) {
  QUIRE_CHECK(num_blocks >= 2);
  for (int32_t i = num_blocks - 1; i >= 1; --i) LinkUnused(i);
}

BlockPool::~BlockPool() { QUIRE_CHECK(tables_ == nullptr); }

absl::Status BlockPool::Allocate(absl::Span<BlockId> blocks) {
  const auto wanted = static_cast<int64_t>(blocks.size());
  if (wanted > num_unused_) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d KV blocks wanted, %d of %d unused", wanted, num_unused_, nodes_.size() - 1));
  }
  for (BlockId& block : blocks) {
    const int32_t index = nodes_[kSentinel].next;
    block = BlockId{index};
    Unlink(index);
    Node& node = nodes_[index];
    if (node.cached) {
      node.cached = false;
      on_evict_(context_, block);
    }
    node.count = 1;
  }
  return absl::OkStatus();
}

void BlockPool::Acquire(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && (node.count > 0 || node.cached));
  if (node.count == 0) Unlink(Index(block));
  ++node.count;
}

void BlockPool::Release(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && node.count > 0);
  if (--node.count == 0) LinkUnused(Index(block));
}

void BlockPool::MarkCached(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && node.count > 0);
  node.cached = true;
}

void BlockPool::UnmarkCached(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(node.cached);
  if (node.count == 0) Unlink(Index(block));
  node.cached = false;
  if (node.count == 0) LinkUnused(Index(block));
}

void BlockPool::LinkBetween(int32_t prev, int32_t index, int32_t next) {
  nodes_[index].prev = prev;
  nodes_[index].next = next;
  nodes_[prev].next = index;
  nodes_[next].prev = index;
  ++num_unused_;
}

void BlockPool::LinkUnused(int32_t index) {
  if (nodes_[index].cached) {
    LinkBetween(nodes_[kSentinel].prev, index, kSentinel);
    ++num_unused_cached_;
  } else {
    LinkBetween(kSentinel, index, nodes_[kSentinel].next);
  }
}

void BlockPool::Unlink(int32_t index) {
  nodes_[nodes_[index].prev].next = nodes_[index].next;
  nodes_[nodes_[index].next].prev = nodes_[index].prev;
  --num_unused_;
  if (nodes_[index].cached) --num_unused_cached_;
}

absl::Status BlockPool::CheckInvariants() const {
  absl::Status queue = CheckQueue();
  return queue.ok() ? CheckCounts() : queue;
}

absl::Status BlockPool::CheckQueue() const {
  int32_t queued = 0, queued_cached = 0;
  for (int32_t i = nodes_[kSentinel].next; i != kSentinel; i = nodes_[i].next) {
    if (nodes_[i].count != 0)
      return absl::InternalError(absl::StrFormat("block %d is queued with count %d", i, nodes_[i].count));
    if (nodes_[nodes_[i].next].prev != i)
      return absl::InternalError(absl::StrFormat("queue is broken after block %d", i));
    if (queued_cached > 0 && !nodes_[i].cached)
      return absl::InternalError(absl::StrFormat("free block %d stands behind a cached one", i));
    queued_cached += nodes_[i].cached ? 1 : 0;
    ++queued;
  }
  if (queued != num_unused_ || queued_cached != num_unused_cached_) {
    return absl::InternalError(absl::StrFormat("%d blocks queued, %d of them cached; %d and %d counted", queued,
                                               queued_cached, num_unused_, num_unused_cached_));
  }
  const auto active = std::count_if(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.count > 0; });
  if (active + queued != num_blocks() - 1) {
    return absl::InternalError(
        absl::StrFormat("%d active and %d queued blocks of %d", active, queued, num_blocks() - 1));
  }
  return absl::OkStatus();
}

absl::Status BlockPool::CheckCounts() const {
  std::vector<int32_t> held(nodes_.size());
  for (const BlockTable* table = tables_; table != nullptr; table = table->next_) {
    for (const BlockId block : table->blocks_) ++held[Index(block)];
  }
  if (held[kSentinel] != 0 || nodes_[kSentinel].count != 0) return absl::InternalError("the null block is held");
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].count != held[i]) {
      return absl::InternalError(
          absl::StrFormat("block %d has count %d and stands in %d tables", i, nodes_[i].count, held[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
