#include "block_manager/block_pool.h"

#include "absl/strings/str_format.h"
#include "block_manager/block_table.h"
#include "kernels/base/check.h"

namespace quire {

BlockPool::BlockPool(int32_t num_blocks, Cache* cache) : nodes_(num_blocks), cache_(cache) {
  QUIRE_CHECK(num_blocks >= 2);
  for (int32_t i = num_blocks - 1; i >= 1; --i) PushFree(i);
}

BlockPool::~BlockPool() { QUIRE_CHECK(tables_ == nullptr); }

absl::Status BlockPool::Allocate(absl::Span<BlockId> blocks) {
  const auto wanted = static_cast<int64_t>(blocks.size());
  if (wanted > num_unused()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d KV blocks wanted, %d of %d unused", wanted, num_unused(), num_blocks() - 1));
  }
  if (fail_at_block_ > 0) {
    if (wanted >= fail_at_block_) {
      fail_at_block_ = 0;
      return absl::ResourceExhaustedError("an injected failure");
    }
    fail_at_block_ -= wanted;
  }
  for (BlockId& block : blocks) {
    if (first_free_ == 0) cache_->Evict();
    QUIRE_CHECK(first_free_ != 0);
    block = BlockId{first_free_};
    Node& node = nodes_[first_free_];
    first_free_ = node.next_free;
    --num_free_;
    node.count = 1;
  }
  return absl::OkStatus();
}

void BlockPool::Acquire(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && (node.count > 0 || node.cached));
  if (node.count++ > 0) return;
  --num_unused_cached_;
  cache_->OnUsed(block);
}

void BlockPool::Release(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && node.count > 0);
  if (--node.count > 0) return;
  if (!node.cached) return PushFree(Index(block));
  ++num_unused_cached_;
  cache_->OnUnused(block);
}

void BlockPool::MarkCached(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && node.count > 0);
  node.cached = true;
}

void BlockPool::UnmarkCached(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(node.cached);
  node.cached = false;
  if (node.count > 0) return;
  --num_unused_cached_;
  PushFree(Index(block));
}

void BlockPool::PushFree(int32_t index) {
  nodes_[index].next_free = first_free_;
  first_free_ = index;
  ++num_free_;
}

absl::Status BlockPool::CheckInvariants() const {
  absl::Status free = CheckFree();
  return free.ok() ? CheckCounts() : free;
}

absl::Status BlockPool::CheckFree() const {
  int32_t listed = 0;
  for (int32_t i = first_free_; i != 0; i = nodes_[i].next_free) {
    if (nodes_[i].count != 0 || nodes_[i].cached)
      return absl::InternalError(absl::StrFormat("block %d is free with count %d", i, nodes_[i].count));
    if (++listed > num_free_) return absl::InternalError("the list of free blocks has no end");
  }
  int32_t cached = 0, active = 0;
  for (const Node& node : nodes_) {
    active += node.count > 0;
    cached += node.count == 0 && node.cached;
  }
  if (listed != num_free_ || cached != num_unused_cached_ || active + cached + listed != num_blocks() - 1) {
    return absl::InternalError(absl::StrFormat("%d free, %d cached and %d active blocks of %d; %d and %d counted",
                                               listed, cached, active, num_blocks() - 1, num_free_,
                                               num_unused_cached_));
  }
  return absl::OkStatus();
}

absl::Status BlockPool::CheckCounts() const {
  std::vector<int32_t> held(nodes_.size());
  for (const BlockTable* table = tables_; table != nullptr; table = table->next_) {
    for (const BlockId block : table->blocks_) ++held[Index(block)];
  }
  if (held[0] != 0 || nodes_[0].count != 0) return absl::InternalError("the null block is held");
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].count != held[i]) {
      return absl::InternalError(
          absl::StrFormat("block %d has count %d and stands in %d tables", i, nodes_[i].count, held[i]));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
