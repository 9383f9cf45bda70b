#include "block_manager/block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      enable_prefix_cache_(options.enable_prefix_cache),
      chain_hash_(options.chain_hash),
      cache_(options.num_blocks, options.block_size),
      pool_(options.num_blocks, &BlockManager::OnEvict, this) {
  QUIRE_CHECK(int64_t{options.num_blocks} * options.block_size <= INT32_MAX);
}

void BlockManager::OnEvict(void* self, BlockId block) {
  auto* manager = static_cast<BlockManager*>(self);
  manager->cache_.Erase(block);
  ++manager->num_evictions_;
}

int32_t BlockManager::MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens,
                                  BlockTable& table) {
  QUIRE_CHECK(table.empty());
  table.link_ = PrefixCache::Root(keys.root);
  if (!enable_prefix_cache_) return 0;
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size())) / block_size_;
  const int32_t num_blocks = std::min(limit, static_cast<int32_t>(keys.blocks.size()));
  for (int32_t i = 0; i < num_blocks; ++i) {
    const BlockId block =
        cache_.Find(table.link_, keys.blocks[i], tokens.subspan(int64_t{i} * block_size_, block_size_));
    if (block == kNullBlock) break;
    pool_.Acquire(block);
    table.blocks_.push_back(block);
    table.link_ = cache_.link(block);
  }
  table.num_published_ = table.size();
  return table.size() * block_size_;
}

absl::Status BlockManager::Reserve(BlockTable& table, int32_t total_tokens) {
  const int32_t missing = BlocksMissing(table, total_tokens);
  if (missing == 0) return absl::OkStatus();
  if (missing > pool_.num_unused()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d KV blocks wanted, %d of %d unused", missing, pool_.num_unused(), num_usable()));
  }
  const size_t old_size = table.blocks_.size();
  table.blocks_.resize(old_size + missing);
  return pool_.Allocate(absl::MakeSpan(table.blocks_).subspan(old_size));
}

void BlockManager::Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed,
                           PrefixKeys& keys) {
  if (!enable_prefix_cache_) return;
  const int32_t num_full = num_computed / block_size_;
  QUIRE_CHECK(num_full <= table.size() && num_computed <= static_cast<int32_t>(tokens.size()));
  if (num_full <= table.num_published_) return;
  // Equal blocks of another table may have been evicted since they stood in for this table's: publish its own.
  if (table.num_published_ == 0 || !cache_.IsAlive(table.link_)) {
    table.num_published_ = 0;
    table.link_ = PrefixCache::Root(keys.root);
  }
  for (int32_t i = table.num_published_; i < num_full; ++i) {
    const auto block_tokens = tokens.subspan(int64_t{i} * block_size_, block_size_);
    if (i == static_cast<int32_t>(keys.blocks.size())) {
      keys.blocks.push_back(chain_hash_(i == 0 ? keys.root : keys.blocks[i - 1], block_tokens));
    }
    BlockId findable = cache_.Find(table.link_, keys.blocks[i], block_tokens);
    if (findable == kNullBlock) {
      findable = table.blocks_[i];
      if (cache_.Contains(findable)) cache_.Erase(findable);  // behind a parent that is gone
      cache_.Insert(table.link_, keys.blocks[i], block_tokens, findable);
      pool_.MarkCached(findable);
    }
    table.link_ = cache_.link(findable);
  }
  table.num_published_ = num_full;
}

BlockManager::ForkResult BlockManager::Fork(const BlockTable& parent, int32_t num_tokens) {
  QUIRE_CHECK(BlocksFor(num_tokens) <= parent.size());
  ForkResult result{NewTable(), 0, std::nullopt};
  const int32_t num_full = num_tokens / block_size_;
  result.table.blocks_.reserve(BlocksFor(num_tokens));
  for (int32_t i = 0; i < num_full; ++i) {
    pool_.Acquire(parent.blocks_[i]);
    result.table.blocks_.push_back(parent.blocks_[i]);
  }
  result.num_tokens = num_full * block_size_;
  if (num_tokens > result.num_tokens && pool_.num_unused() > 0) {
    BlockId copy = kNullBlock;
    QUIRE_CHECK(pool_.Allocate(absl::MakeSpan(&copy, 1)).ok());
    result.table.blocks_.push_back(copy);
    result.copy = BlockCopy{parent.blocks_[num_full], copy};
    result.num_tokens = num_tokens;
  }
  return result;
}

BlockStats BlockManager::stats() const {
  BlockStats stats;
  stats.total = num_usable();
  stats.cached = pool_.num_unused_cached();
  stats.free = pool_.num_unused() - stats.cached;
  stats.active = stats.total - pool_.num_unused();
  stats.evictions = num_evictions_;
  return stats;
}

absl::Status BlockManager::CheckInvariants() const {
  QUIRE_RETURN_IF_ERROR(pool_.CheckInvariants());
  QUIRE_RETURN_IF_ERROR(cache_.CheckInvariants());
  for (int32_t i = 1; i < pool_.num_blocks(); ++i) {
    if (pool_.is_cached(BlockId{i}) != cache_.Contains(BlockId{i})) {
      return absl::InternalError(absl::StrFormat("block %d: marked %d, findable %d", i, pool_.is_cached(BlockId{i}),
                                                 cache_.Contains(BlockId{i})));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
