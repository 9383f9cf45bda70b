#include "block_manager/block_manager.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {

BlockManager::BlockManager(const BlockManagerOptions& options)
    : block_size_(options.block_size),
      enable_prefix_cache_(options.enable_prefix_cache),
      min_partial_tokens_(options.min_partial_tokens),
      chain_hash_(options.chain_hash),
      cache_(options.num_blocks + options.num_host_blocks, options.block_size, options.token_order),
      eviction_(options.num_blocks, options.eviction, options.num_host_blocks),
      events_(options.num_events, options.block_size),
      misses_(options.num_remembered),
      integrity_(options.integrity ? std::make_unique<IntegrityLog>(options.group_windows.empty()
                                                                        ? options.num_blocks + options.num_host_blocks
                                                                        : options.num_pages + options.num_host_pages)
                                   : nullptr),
      pool_(options.num_blocks, this, options.num_host_blocks),
      pages_(options.group_windows.empty()
                 ? nullptr
                 : std::make_unique<GroupPages>(options.group_windows, options.block_size,
                                                GroupPages::Sizes{options.num_blocks, options.num_pages},
                                                GroupPages::Sizes{options.num_host_blocks, options.num_host_pages})) {
  QUIRE_CHECK(options.min_partial_tokens >= 1);
  QUIRE_CHECK((int64_t{options.num_blocks} + options.num_host_blocks) * options.block_size <= INT32_MAX);
}

PrefixMatch BlockManager::MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens,
                                      BlockTable& table) {
  QUIRE_CHECK(table.empty());
  table.link_ = PrefixCache::Root(keys.root);
  table.epoch_ = epoch_;
  if (!enable_prefix_cache_) return {.miss = MissReason::kCacheOff};
  if (!keys.read) return {.miss = MissReason::kBypassed};
  PrefixMatch match;
  tokens = tokens.subspan(0, std::max(0, max_tokens));
  const auto limit = static_cast<int32_t>(tokens.size());
  const int32_t num_blocks = std::min(limit / block_size_, static_cast<int32_t>(keys.blocks.size()));
  for (int32_t i = 0; i < num_blocks; ++i) {
    const BlockId block =
        cache_.Find(table.link_, keys.blocks[i], tokens.subspan(int64_t{i} * block_size_, block_size_));
    if (block == kNullBlock || (pool_.IsHost(block) && !host_use_.fetch)) break;
    Hold(block, table);
    table.link_ = cache_.link(block);
  }
  table.num_published_ = match.missed_block = table.size();
  table.num_stored_ = match.num_tokens = table.size() * block_size_;
  table.hit_pending_ = table.size() > 0;
  MatchInsideBlock(tokens.subspan(match.num_tokens, block_size_), table, &match);
  if (match.num_tokens < limit) Explain(keys, tokens, &match);
  if (pages_ != nullptr) CutToPages(table, keys, &match);
  match.host_blocks = table.num_on_host_;
  return match;
}

void BlockManager::Hold(BlockId found, BlockTable& table) {
  pool_.Acquire(found);
  table.blocks_.push_back(found);
  if (pool_.IsHost(found)) {
    ++table.num_on_host_;
  } else if (integrity_ && pages_ == nullptr) {
    integrity_->Found(found);
  }
}

// `tokens`: those wanted of the next block, perhaps none.
void BlockManager::MatchInsideBlock(absl::Span<const int32_t> tokens, BlockTable& table, PrefixMatch* match) {
  if (tokens.empty()) return;
  const int32_t least = LeastTokensOf(table.size());
  if (static_cast<int32_t>(tokens.size()) < least) {
    match->miss = MissReason::kUnderMinimum;
    return;
  }
  const PrefixCache::Match found = cache_.FindLongest(table.link_, tokens);
  if (found.num_tokens == 0) return;
  if (found.num_tokens < least || (pool_.IsHost(found.block) && !host_use_.fetch)) {
    const bool too_short = table.empty() && found.num_tokens < least;
    match->miss = too_short ? MissReason::kUnderMinimum : MissReason::kCopyNotWorth;
    return;
  }
  Hold(found.block, table);
  table.tail_may_be_shared_ = true;
  match->partial_tokens = found.num_tokens;
  match->num_tokens += found.num_tokens;
  table.num_stored_ = match->num_tokens;
}

// Why less than `tokens` was found. Prompts often begin with the same few tokens: that fewer than a block of them were
// found says less than what became of the whole block.
void BlockManager::Explain(const PrefixKeys& keys, absl::Span<const int32_t> tokens, PrefixMatch* match) const {
  const int32_t i = match->missed_block;
  const bool wants_less = static_cast<int64_t>(tokens.size()) < (i + int64_t{1}) * block_size_;
  if (match->miss == MissReason::kCopyNotWorth || (match->miss == MissReason::kUnderMinimum && wants_less)) return;
  if (match->miss == MissReason::kNone) match->miss = MissReason::kNeverSeen;
  if (i < static_cast<int32_t>(keys.blocks.size())) {
    if (const auto when = misses_.WhenEvicted(keys.blocks[i])) {
      match->miss = MissReason::kEvicted;
      match->evicted_at = *when;
      return;
    }
  }
  if (i == 0 && static_cast<int32_t>(tokens.size()) >= block_size_ &&
      misses_.HasOtherRoot(chain_hash_({}, tokens.subspan(0, block_size_)), keys.root, keys.tenant)) {
    match->miss = MissReason::kOtherRoot;
  }
}

int32_t BlockManager::SharedTail(const BlockTable& table, int32_t total_tokens) const {
  if (!table.tail_may_be_shared_ || table.num_stored_ % block_size_ == 0 || total_tokens <= table.num_stored_)
    return -1;
  const int32_t index = table.num_stored_ / block_size_;
  const BlockId block = table.blocks_[index];
  return pool_.count(block) > 1 || pool_.is_cached(block) ? index : -1;
}

int32_t BlockManager::BlocksToCopy(const BlockTable& table, int32_t tail) const {
  return tail >= 0 && pool_.count(table.blocks_[tail]) > 1 && !pool_.IsHost(table.blocks_[tail]) ? 1 : 0;
}

int32_t BlockManager::BlocksMissing(const BlockTable& table, int32_t total_tokens) const {
  if (pages_ != nullptr) return PagesMissing(table, total_tokens);
  const int32_t copy = BlocksToCopy(table, SharedTail(table, total_tokens));
  return std::max(0, BlocksFor(total_tokens) - table.size()) + copy + table.num_on_host_;
}

absl::Status BlockManager::Reserve(BlockTable& table, int32_t total_tokens, std::vector<BlockCopy>* copies) {
  const int32_t fresh = std::max(0, BlocksFor(total_tokens) - table.size());
  const int32_t tail = SharedTail(table, total_tokens);
  if (fresh == 0 && tail < 0 && table.num_on_host_ == 0 && pages_ == nullptr) return absl::OkStatus();
  const int32_t missing = BlocksMissing(table, total_tokens);
  if (missing > num_unused()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d KV blocks wanted, %d of %d unused", missing, num_unused(), num_usable()));
  }
  if (table.empty()) table.epoch_ = epoch_;
  const bool from_host = tail >= 0 && pool_.IsHost(table.blocks_[tail]);
  const int32_t fetched = table.num_on_host_ - from_host;
  const bool copy = from_host || (tail >= 0 && fresh + fetched < pool_.num_unused() &&
                                  (pages_ == nullptr || RoomToCopyPages(table, total_tokens)));
  const size_t old_size = table.blocks_.size();
  table.blocks_.resize(old_size + fresh + copy + fetched);
  const absl::Span<BlockId> taken = absl::MakeSpan(table.blocks_).subspan(old_size);
  copies_ = copies;
  const absl::Cleanup done = [this] { copies_ = nullptr; };
  if (absl::Status status = pool_.Allocate(taken); !status.ok()) {
    table.blocks_.resize(old_size);
    return status;
  }
  if (integrity_ && pages_ == nullptr) {
    for (const BlockId block : taken) integrity_->HandedOut(block);
  }
  QUIRE_CHECK(copies != nullptr || (fetched == 0 && !copy));
  if (fetched > 0) Fetch(table, fetched, tail);
  if (copy) {
    CopyTail(table, tail);
  } else if (tail >= 0 && cache_.Contains(table.blocks_[tail])) {
    // The last unused block is the source itself: written in place. What was just evicted may have taken it along,
    // where an equal block of another table stands before it in the cache.
    Forget(table.blocks_[tail]);
  }
  if (total_tokens > table.num_stored_) table.tail_may_be_shared_ = false;
  if (pages_ != nullptr) AttachPages(table, total_tokens, PagedTokens(table, total_tokens));
  return absl::OkStatus();
}

// Exchanges the block that is written next for the table's last one, a copy of it.
void BlockManager::CopyTail(BlockTable& table, int32_t tail) {
  const BlockId src = table.blocks_[tail], own = table.blocks_.back();
  table.Exchange(tail, own);
  table.blocks_.pop_back();
  if (pages_ == nullptr) {
    copies_->push_back({src, own});
  } else {
    CopyPages(src, own);
  }
  if (pool_.IsHost(src)) {
    num_copied_in_ += pages_ == nullptr ? 1 : pages_->num_groups();
    --table.num_on_host_;
  }
  pool_.Release(src);
  table.copy_pending_ = true;
}

// Gives back the blocks behind the first `num_blocks`.
void BlockManager::Truncate(BlockTable& table, int32_t num_blocks) {
  for (; table.size() > num_blocks; table.blocks_.pop_back()) {
    const BlockId last = table.blocks_.back();
    for (int32_t g = 0; pages_ != nullptr && g < pages_->num_groups(); ++g) {
      BlockTable::Range& range = table.paged_[g];
      if (range.end < table.size()) continue;
      pages_->Release(g, last, pool_.FateOfPage(last));
      --range.end;
      range.begin = std::min(range.begin, range.end);
    }
    table.num_on_host_ -= pool_.IsHost(last);
    pool_.Release(last);
  }
  table.Restamp();
}

void BlockManager::Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed,
                           PrefixKeys& keys) {
  QUIRE_CHECK(num_computed <= int64_t{table.size()} * block_size_ &&
              num_computed <= static_cast<int32_t>(tokens.size()));
  if (table.hit_pending_) CountHit(table, keys);
  table.num_stored_ = num_computed;
  table.copy_pending_ = false;
  const bool more_full = num_computed >= (int64_t{table.num_published_} + 1) * block_size_;
  if (more_full && MayBeFound(table, keys)) PublishFull(table, tokens, keys);
  if (pages_ != nullptr) SlideOut(table);
}

void BlockManager::CountHit(BlockTable& table, const PrefixKeys& keys) {
  table.hit_pending_ = false;
  if (!cache_.IsAlive(table.link_)) return;  // dropped since
  for (int32_t i = 0; i < table.num_published_; ++i) {
    if (!cache_.Contains(table.blocks_[i])) continue;  // fetched or computed by two tables: the other's is found
    eviction_.CountHit(cache_.entry(table.blocks_[i]), keys.retention.For(i * block_size_, (i + 1) * block_size_));
  }
}

void BlockManager::PublishFull(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys) {
  // Equal blocks of another table may have been evicted since they stood in for this table's: publish its own.
  if (table.num_published_ == 0 || !cache_.IsAlive(table.link_)) {
    table.num_published_ = 0;
    table.link_ = PrefixCache::Root(keys.root);
    table.hit_pending_ = false;  // what was hit is gone
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
      if (!Insert(table.link_, keys, i * block_size_, block_tokens, findable)) return;
    } else if (pool_.IsHost(findable) && !cache_.Contains(table.blocks_[i])) {
      Adopt(findable, table.blocks_[i]);
      findable = table.blocks_[i];
    }
    table.link_ = cache_.link(findable);
    table.num_published_ = i + 1;
  }
}

void BlockManager::Seal(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys) {
  if (!MayBeFound(table, keys)) return;
  PublishFull(table, tokens, keys);
  const int32_t num_full = table.num_stored_ / block_size_;
  const auto tail = tokens.subspan(int64_t{num_full} * block_size_, table.num_stored_ % block_size_);
  if (tail.empty() || table.copy_pending_ || table.num_published_ < num_full) return;
  if (cache_.FindLongest(table.link_, tail).num_tokens == static_cast<int32_t>(tail.size())) return;
  if (Insert(table.link_, keys, num_full * block_size_, tail, table.blocks_[num_full]))
    table.tail_may_be_shared_ = true;
}

bool BlockManager::MakeRoomInQuota(int32_t tenant) {
  while (eviction_.Excess(tenant) > 0) {
    const EntryId victim = eviction_.NextOf(tenant);
    if (victim == kNoEntry) return false;
    Forget(cache_.block(victim));
  }
  return true;
}

bool BlockManager::Insert(const PrefixLink& parent, const PrefixKeys& keys, int32_t position,
                          absl::Span<const int32_t> tokens, BlockId block) {
  if (cache_.Contains(block)) Forget(block);  // a fork has sealed fewer of its tokens
  if (!MakeRoomInQuota(keys.tenant) || !cache_.IsAlive(parent)) return false;
  const int32_t i = position / block_size_;
  const bool full = static_cast<int32_t>(tokens.size()) == block_size_;
  const BlockHash key = full ? keys.blocks[i] : BlockHash{};
  const BlockId promoted = cache_.Insert(parent, key, tokens, block);
  if (promoted != kNullBlock) {
    eviction_.Remove(cache_.entry(promoted));
    pool_.UnmarkCached(promoted);
    NoteUnsealed(promoted);
    if (pages_ != nullptr) pages_->Drop(promoted);
  }
  pool_.MarkCached(block);
  eviction_.Add(cache_.entry(block), parent.entry, position, keys.tenant,
                keys.retention.For(position, position + block_size_));
  NoteSealed(block, static_cast<int32_t>(tokens.size()));
  if (full) {
    events_.Stored(key, i == 0 ? keys.root : keys.blocks[i - 1], tokens);
    if (i == 0) misses_.StoredFirst(chain_hash_({}, tokens), keys.root, keys.tenant);
  }
  return true;
}

void BlockManager::NoteSealed(BlockId block, int32_t num_tokens) {
  if (integrity_) ForPlaces(block, [&](BlockId place) { integrity_->Sealed(place, num_tokens); });
}

void BlockManager::NoteUnsealed(BlockId block) {
  if (integrity_) ForPlaces(block, [&](BlockId place) { integrity_->Unsealed(place); });
}

void BlockManager::Evict() {
  const EntryId victim = eviction_.Next();
  QUIRE_CHECK(victim != kNoEntry);
  eviction_.Evicted(victim);
  ++num_evictions_;
  const BlockId block = cache_.block(victim);
  if (!Demote(block)) Forget(block);
}

int32_t BlockManager::Forget(BlockId block) {
  int32_t forgotten = 0;
  for (BlockId at = block;;) {
    if (cache_.has_children(at)) {
      at = cache_.FirstChild(cache_.link(at));
      continue;
    }
    const BlockId parent = cache_.block(cache_.parent(at).entry);
    ForgetOne(at);
    ++forgotten;
    if (at == block) return forgotten;
    at = parent;
  }
}

void BlockManager::ForgetOne(BlockId block) {
  if (cache_.is_full(block)) {
    events_.Removed(cache_.key(block), TierOf(block));
    misses_.Evicted(cache_.key(block), now_);
  }
  NoteUnsealed(block);
  eviction_.Remove(cache_.entry(block));
  cache_.Erase(block);
  pool_.UnmarkCached(block);
  if (pages_ != nullptr) pages_->Drop(block);
}

BlockTable BlockManager::Fork(const BlockTable& parent, int32_t num_tokens) {
  QUIRE_CHECK(num_tokens <= parent.num_stored_);
  BlockTable table = NewTable();
  const int32_t num_blocks = BlocksFor(num_tokens);
  table.blocks_.assign(parent.blocks_.begin(), parent.blocks_.begin() + num_blocks);
  for (const BlockId block : table.blocks_) pool_.Acquire(block);
  table.num_stored_ = num_tokens;
  if (parent.num_on_host_ > 0) table.num_on_host_ = CountOnHost(table);
  table.tail_may_be_shared_ = parent.tail_may_be_shared_ = true;
  table.epoch_ = parent.epoch_;
  table.copy_pending_ = parent.copy_pending_ && num_tokens > parent.num_stored_ / block_size_ * block_size_;
  if (parent.num_published_ <= num_tokens / block_size_) {
    table.num_published_ = parent.num_published_;
    table.link_ = parent.link_;
  }
  if (pages_ != nullptr && !SharePages(table)) table.Clear();
  return table;
}

BlockStats BlockManager::stats() const {
  BlockStats stats;
  stats.total = num_usable();
  stats.cached = pages_ != nullptr ? pages_->num_idle() : pool_.num_unused_cached();
  stats.free = num_unused() - stats.cached;
  stats.active = stats.total - num_unused();
  stats.evictions = num_evictions();
  stats.host_total = pages_ != nullptr ? pages_->num_host_pages() : pool_.num_host_blocks();
  stats.host_used = stats.host_total - (pages_ != nullptr ? pages_->num_free_host() : pool_.num_free_host());
  stats.copied_out = num_copied_out_;
  stats.copied_in = num_copied_in_;
  stats.pinned = eviction_.num_pinned();
  stats.max_pinned = eviction_.max_pinned();
  stats.pins_refused = eviction_.num_pins_refused();
  return stats;
}

}  // namespace quire
