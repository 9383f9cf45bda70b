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
      min_partial_tokens_(options.min_partial_tokens),
      chain_hash_(options.chain_hash),
      cache_(options.num_blocks, options.block_size),
      pool_(options.num_blocks, &BlockManager::OnEvict, this) {
  QUIRE_CHECK(options.min_partial_tokens >= 1);
  QUIRE_CHECK(int64_t{options.num_blocks} * options.block_size <= INT32_MAX);
}

void BlockManager::OnEvict(void* self, BlockId block) {
  auto* manager = static_cast<BlockManager*>(self);
  manager->cache_.Erase(block);
  ++manager->num_evictions_;
}

PrefixMatch BlockManager::MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens,
                                      BlockTable& table) {
  QUIRE_CHECK(table.empty());
  table.link_ = PrefixCache::Root(keys.root);
  PrefixMatch match;
  if (!enable_prefix_cache_) return {.miss = MissReason::kCacheOff};
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size()));
  const int32_t num_blocks = std::min(limit / block_size_, static_cast<int32_t>(keys.blocks.size()));
  for (int32_t i = 0; i < num_blocks; ++i) {
    const BlockId block =
        cache_.Find(table.link_, keys.blocks[i], tokens.subspan(int64_t{i} * block_size_, block_size_));
    if (block == kNullBlock) break;
    pool_.Acquire(block);
    table.blocks_.push_back(block);
    table.link_ = cache_.link(block);
  }
  table.num_published_ = match.missed_block = table.size();
  table.num_stored_ = match.num_tokens = table.size() * block_size_;

  const int32_t wanted = std::min(limit - match.num_tokens, block_size_);
  if (wanted <= 0) return match;
  const PrefixCache::Match partial = cache_.FindLongest(table.link_, tokens.subspan(match.num_tokens, wanted));
  if (partial.num_tokens < wanted) {
    match.miss = partial.num_tokens == 0 || partial.num_tokens >= min_partial_tokens_ ? MissReason::kNeverSeen
                                                                                      : MissReason::kCopyNotWorth;
  }
  if (partial.num_tokens > 0 && partial.num_tokens >= min_partial_tokens_) {
    pool_.Acquire(partial.block);
    table.blocks_.push_back(partial.block);
    match.partial_tokens = partial.num_tokens;
    match.num_tokens += partial.num_tokens;
    table.num_stored_ = match.num_tokens;
  }
  return match;
}

int32_t BlockManager::SharedTail(const BlockTable& table, int32_t total_tokens) const {
  if (table.num_stored_ % block_size_ == 0 || total_tokens <= table.num_stored_) return -1;
  const int32_t index = table.num_stored_ / block_size_;
  const BlockId block = table.blocks_[index];
  return pool_.count(block) > 1 || pool_.is_cached(block) ? index : -1;
}

int32_t BlockManager::BlocksMissing(const BlockTable& table, int32_t total_tokens) const {
  const int32_t tail = SharedTail(table, total_tokens);
  // The source of a copy that nobody else holds is unused afterwards.
  const int32_t copy = tail >= 0 && pool_.count(table.blocks_[tail]) > 1 ? 1 : 0;
  return std::max(0, BlocksFor(total_tokens) - table.size()) + copy;
}

absl::Status BlockManager::Reserve(BlockTable& table, int32_t total_tokens, std::vector<BlockCopy>* copies) {
  const int32_t missing = BlocksMissing(table, total_tokens);
  if (missing > pool_.num_unused()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d KV blocks wanted, %d of %d unused", missing, pool_.num_unused(), num_usable()));
  }
  const int32_t fresh = std::max(0, BlocksFor(total_tokens) - table.size());
  const int32_t tail = SharedTail(table, total_tokens);
  const bool copy = tail >= 0 && fresh < pool_.num_unused();
  if (fresh == 0 && tail < 0) return absl::OkStatus();
  const size_t old_size = table.blocks_.size();
  table.blocks_.resize(old_size + fresh + copy);
  if (absl::Status status = pool_.Allocate(absl::MakeSpan(table.blocks_).subspan(old_size)); !status.ok()) {
    table.blocks_.resize(old_size);
    return status;
  }
  if (copy) {
    QUIRE_CHECK(copies != nullptr);
    const BlockId src = table.blocks_[tail];
    table.blocks_[tail] = table.blocks_.back();
    table.blocks_.pop_back();
    copies->push_back({src, table.blocks_[tail]});
    pool_.Release(src);
    table.copy_pending_ = true;
  } else if (tail >= 0) {
    Forget(table.blocks_[tail]);  // the last unused block is the source itself: written in place
  }
  return absl::OkStatus();
}

void BlockManager::Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed,
                           PrefixKeys& keys) {
  QUIRE_CHECK(BlocksFor(num_computed) <= table.size() && num_computed <= static_cast<int32_t>(tokens.size()));
  table.num_stored_ = num_computed;
  table.copy_pending_ = false;
  if (enable_prefix_cache_ && num_computed / block_size_ > table.num_published_) PublishFull(table, tokens, keys);
}

void BlockManager::PublishFull(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys) {
  // Equal blocks of another table may have been evicted since they stood in for this table's: publish its own.
  if (table.num_published_ == 0 || !cache_.IsAlive(table.link_)) {
    table.num_published_ = 0;
    table.link_ = PrefixCache::Root(keys.root);
  }
  const int32_t num_full = table.num_stored_ / block_size_;
  for (auto i = static_cast<int32_t>(keys.blocks.size()); i < num_full; ++i) {
    keys.blocks.push_back(
        chain_hash_(i == 0 ? keys.root : keys.blocks[i - 1], tokens.subspan(int64_t{i} * block_size_, block_size_)));
  }
  for (int32_t i = table.num_published_; i < num_full; ++i) {
    const auto block_tokens = tokens.subspan(int64_t{i} * block_size_, block_size_);
    BlockId findable = cache_.Find(table.link_, keys.blocks[i], block_tokens);
    if (findable == kNullBlock) {
      findable = table.blocks_[i];
      Insert(table.link_, keys.blocks[i], block_tokens, findable);
    }
    table.link_ = cache_.link(findable);
  }
  table.num_published_ = num_full;
}

void BlockManager::Seal(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys) {
  if (!enable_prefix_cache_) return;
  PublishFull(table, tokens, keys);
  const int32_t num_full = table.num_stored_ / block_size_;
  const auto tail = tokens.subspan(int64_t{num_full} * block_size_, table.num_stored_ % block_size_);
  if (tail.empty() || table.copy_pending_ || cache_.Contains(table.blocks_[num_full])) return;
  if (cache_.FindLongest(table.link_, tail).num_tokens == static_cast<int32_t>(tail.size())) return;
  Insert(table.link_, {}, tail, table.blocks_[num_full]);
}

void BlockManager::Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens,
                          BlockId block) {
  if (cache_.Contains(block)) Forget(block);  // behind a parent that is gone
  const BlockId promoted = cache_.Insert(parent, key, tokens, block);
  if (promoted != kNullBlock) pool_.UnmarkCached(promoted);
  pool_.MarkCached(block);
}

void BlockManager::Forget(BlockId block) {
  cache_.Erase(block);
  pool_.UnmarkCached(block);
}

BlockTable BlockManager::Fork(const BlockTable& parent, int32_t num_tokens) {
  QUIRE_CHECK(num_tokens <= parent.num_stored_);
  BlockTable table = NewTable();
  const int32_t num_blocks = BlocksFor(num_tokens);
  table.blocks_.assign(parent.blocks_.begin(), parent.blocks_.begin() + num_blocks);
  for (const BlockId block : table.blocks_) pool_.Acquire(block);
  table.num_stored_ = num_tokens;
  table.copy_pending_ = parent.copy_pending_ && num_tokens > parent.num_stored_ / block_size_ * block_size_;
  if (parent.num_published_ <= num_tokens / block_size_) {
    table.num_published_ = parent.num_published_;
    table.link_ = parent.link_;
  }
  return table;
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
