#include "block_manager/block_pool.h"

#include "absl/strings/str_format.h"
#include "block_manager/block_table.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {

BlockPool::BlockPool(int32_t num_blocks, Cache* cache, int32_t num_host_blocks)
    : num_blocks_(num_blocks), nodes_(int64_t{num_blocks} + num_host_blocks), cache_(cache) {
  QUIRE_CHECK(num_blocks >= 2 && num_host_blocks >= 0);
  for (int32_t i = num_all_blocks() - 1; i >= 1; --i) PushFree(i);
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
    if (tiers_[0].first_free == 0) cache_->Evict();
    const int32_t index = PopFree(tiers_[0]);
    block = BlockId{index};
    nodes_[index].count = 1;
  }
  return absl::OkStatus();
}

void BlockPool::Acquire(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && (node.count > 0 || node.cached));
  if (node.count++ > 0) return;
  --TierOf(Index(block)).num_unused_cached;
  cache_->OnUsed(block);
}

void BlockPool::Release(BlockId block) {
  Node& node = nodes_[Index(block)];
  QUIRE_CHECK(block != kNullBlock && node.count > 0);
  if (--node.count > 0) return;
  if (!node.cached) return PushFree(Index(block));
  ++TierOf(Index(block)).num_unused_cached;
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
  --TierOf(Index(block)).num_unused_cached;
  PushFree(Index(block));
}

BlockId BlockPool::Demote(BlockId block) {
  QUIRE_CHECK(!IsHost(block) && count(block) == 0);
  UnmarkCached(block);
  const int32_t index = PopFree(tiers_[1]);
  nodes_[index].cached = true;
  ++tiers_[1].num_unused_cached;
  return BlockId{index};
}

BlockId BlockPool::TakeHost() {
  const int32_t index = PopFree(tiers_[1]);
  nodes_[index].count = 1;
  return BlockId{index};
}

void BlockPool::PushFree(int32_t index) {
  Tier& tier = TierOf(index);
  nodes_[index].next_free = tier.first_free;
  tier.first_free = index;
  ++tier.num_free;
}

int32_t BlockPool::PopFree(Tier& tier) {
  const int32_t index = tier.first_free;
  QUIRE_CHECK(index != 0);
  tier.first_free = nodes_[index].next_free;
  --tier.num_free;
  return index;
}

absl::Status BlockPool::CheckInvariants() const {
  QUIRE_RETURN_IF_ERROR(CheckTier(tiers_[0], 1, num_blocks_));
  QUIRE_RETURN_IF_ERROR(CheckTier(tiers_[1], num_blocks_, num_all_blocks()));
  return CheckCounts();
}

// The blocks begin .. end - 1 are those of the tier.
absl::Status BlockPool::CheckTier(const Tier& tier, int32_t begin, int32_t end) const {
  int32_t listed = 0;
  for (int32_t i = tier.first_free; i != 0; i = nodes_[i].next_free) {
    if (nodes_[i].count != 0 || nodes_[i].cached || i < begin || i >= end)
      return absl::InternalError(absl::StrFormat("block %d is free with count %d", i, nodes_[i].count));
    if (++listed > tier.num_free) return absl::InternalError("the list of free blocks has no end");
  }
  int32_t cached = 0, active = 0;
  for (int32_t i = begin; i < end; ++i) {
    active += nodes_[i].count > 0;
    cached += nodes_[i].count == 0 && nodes_[i].cached;
  }
  if (listed != tier.num_free || cached != tier.num_unused_cached || active + cached + listed != end - begin) {
    return absl::InternalError(absl::StrFormat("%d free, %d cached and %d active blocks of %d; %d and %d counted",
                                               listed, cached, active, end - begin, tier.num_free,
                                               tier.num_unused_cached));
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
