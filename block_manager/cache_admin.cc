// The part of BlockManager that looks at the cache as a whole: time, retention, inspection, checks.

#include <algorithm>

#include "absl/strings/str_format.h"
#include "block_manager/block_manager.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {

void BlockManager::AdvanceTime(absl::Time now) {
  if (observer_ != nullptr) observer_->OnAdvanceTime(now);
  now_ = std::max(now_, now);
  eviction_.AdvanceTime(now_);
}

void BlockManager::Spare(const BlockHash& root, absl::Span<const BlockHash> blocks, absl::Span<const int32_t> tokens) {
  PrefixLink link = PrefixCache::Root(root);
  size_t begin = 0;
  for (const BlockHash& key : blocks) {
    const BlockId block = cache_.Find(link, key, tokens.subspan(begin, block_size_));
    if (block == kNullBlock) break;
    link = cache_.link(block);
    begin += block_size_;
  }
  // Blocks before the last one found cannot go before it.
  const auto rest = tokens.subspan(begin, block_size_);
  const PrefixCache::Match inside = rest.empty() ? PrefixCache::Match{} : cache_.FindLongest(link, rest);
  if (link.entry != kNoEntry) eviction_.Touch(link.entry);
  if (inside.num_tokens >= LeastTokensOf(static_cast<int32_t>(begin) / block_size_))
    eviction_.Touch(cache_.entry(inside.block));
}

void BlockManager::SetTenantQuota(int32_t tenant, int32_t max_blocks) {
  if (observer_ != nullptr) observer_->OnSetTenantQuota(tenant, max_blocks);
  eviction_.SetQuota(tenant, max_blocks);
  while (eviction_.Excess(tenant) > 1) {
    const EntryId victim = eviction_.NextOf(tenant);
    if (victim == kNoEntry) return;
    Forget(cache_.block(victim));
  }
}

PrefixInfo BlockManager::InfoOf(BlockId last) const {
  const EvictionOrder::Info info = eviction_.info(cache_.entry(last));
  PrefixInfo prefix;
  prefix.num_tokens = static_cast<int32_t>(cache_.tokens(last).size());
  prefix.num_hits = prefix.head_hits = info.hits;
  prefix.priority = info.priority;
  prefix.tenant = info.tenant;
  prefix.last_used = info.last_used;
  prefix.expires = info.expires;
  prefix.in_use = pool_.count(last) > 0;
  prefix.on_host = pool_.IsHost(last);
  const PrefixLink* parent = &cache_.parent(last);
  prefix.key = cache_.is_full(last) ? cache_.key(last) : KeyOf(*parent);
  for (; parent->entry != kNoEntry; parent = &cache_.parent(cache_.block(parent->entry))) {
    prefix.num_tokens += block_size_;
    prefix.head_hits = eviction_.info(parent->entry).hits;
  }
  prefix.root = parent->id;
  return prefix;
}

std::vector<PrefixInfo> BlockManager::ListPrefixes() const {
  std::vector<PrefixInfo> prefixes;
  for (int32_t i = 1; i < pool_.num_all_blocks(); ++i) {
    const BlockId block{i};
    if (cache_.Contains(block) && !cache_.has_children(block)) prefixes.push_back(InfoOf(block));
  }
  return prefixes;
}

int32_t BlockManager::DropPrefix(const BlockHash& root, absl::Span<const int32_t> tokens) {
  if (observer_ != nullptr) observer_->OnDropPrefix(root, tokens);
  const int32_t dropped = ForgetPrefix(root, tokens);
  if (observer_ != nullptr) observer_->OnDropped(dropped);
  return dropped;
}

int32_t BlockManager::ForgetPrefix(const BlockHash& root, absl::Span<const int32_t> tokens) {
  PrefixLink link = PrefixCache::Root(root);
  while (static_cast<int32_t>(tokens.size()) > block_size_) {
    const PrefixCache::Match match = cache_.FindLongest(link, tokens.subspan(0, block_size_));
    if (match.num_tokens < block_size_) return 0;
    link = cache_.link(match.block);
    tokens.remove_prefix(block_size_);
  }
  int32_t dropped = 0;
  while (true) {
    const BlockId first = tokens.empty() ? cache_.FirstChild(link) : kNullBlock;
    const PrefixCache::Match match = tokens.empty() ? PrefixCache::Match{first, 0} : cache_.FindLongest(link, tokens);
    if (match.block == kNullBlock || match.num_tokens < static_cast<int32_t>(tokens.size())) return dropped;
    dropped += Forget(match.block);
  }
}

int32_t BlockManager::DropTenant(int32_t tenant) {
  if (observer_ != nullptr) observer_->OnDropTenant(tenant);
  int32_t dropped = 0;
  for (int32_t i = 1; i < pool_.num_all_blocks(); ++i) {
    const BlockId block{i};
    if (cache_.Contains(block) && eviction_.info(cache_.entry(block)).tenant == tenant) dropped += Forget(block);
  }
  if (observer_ != nullptr) observer_->OnDropped(dropped);
  return dropped;
}

int32_t BlockManager::DropAll() {
  if (observer_ != nullptr) observer_->OnDropAll();
  ++epoch_;
  int32_t dropped = 0;
  for (int32_t i = 1; i < pool_.num_all_blocks(); ++i) {
    if (cache_.Contains(BlockId{i})) dropped += Forget(BlockId{i});
  }
  events_.Cleared();
  if (observer_ != nullptr) observer_->OnDropped(dropped);
  return dropped;
}

void BlockManager::TakeIntegrityWork(IntegrityWork* work) {
  const auto is_free = [this](BlockId place) {
    if (pages_ != nullptr) return pages_->IsFree(PageId{static_cast<int32_t>(place)});
    return pool_.count(place) == 0 && !pool_.is_cached(place);
  };
  integrity_->Take(is_free, work);
}

void BlockManager::EndIntegrityWork(const IntegrityWork& work, bool failed) {
  for (const IntegrityWork::Item& item : work.checksums) {
    if (failed) {
      integrity_->Failed(item.block, cache_.Contains(BlockAt(item.block)));
    } else {
      integrity_->Completed(item.block);
    }
  }
}

absl::Status BlockManager::CheckInvariants() const {
  QUIRE_RETURN_IF_ERROR(pool_.CheckInvariants());
  QUIRE_RETURN_IF_ERROR(cache_.CheckInvariants());
  QUIRE_RETURN_IF_ERROR(eviction_.CheckInvariants());
  for (int32_t i = 1; i < pool_.num_all_blocks(); ++i) {
    const BlockId block{i};
    if (pool_.is_cached(block) != cache_.Contains(block)) {
      return absl::InternalError(
          absl::StrFormat("block %d: marked %d, findable %d", i, pool_.is_cached(block), cache_.Contains(block)));
    }
    if (cache_.Contains(block) && eviction_.is_on_host(cache_.entry(block)) != pool_.IsHost(block)) {
      return absl::InternalError(absl::StrFormat("block %d stands on the wrong tier in the order of eviction", i));
    }
    if (cache_.Contains(block) && eviction_.is_unused(cache_.entry(block)) != (pool_.count(block) == 0)) {
      return absl::InternalError(absl::StrFormat("block %d has count %d and is unused %d in the order of eviction", i,
                                                 pool_.count(block), eviction_.is_unused(cache_.entry(block))));
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckTables());
  return pages_ != nullptr ? CheckPages() : absl::OkStatus();
}

}  // namespace quire
