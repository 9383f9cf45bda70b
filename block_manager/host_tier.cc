// The part of BlockManager that keeps what is evicted from the device on the host, and brings it back.

#include <algorithm>

#include "absl/strings/str_format.h"
#include "block_manager/block_manager.h"
#include "kernels/base/check.h"

namespace quire {

// The contents of an unused block of the device go to the host and are found there. False if they are worth no place
// there. Either way the block may be free afterwards.
bool BlockManager::Demote(BlockId block) {
  const EntryId entry = cache_.entry(block);
  if (!has_host_tier() || copies_ == nullptr || host_use_.max_demotions == 0 || eviction_.IsKeptOffHost(entry)) {
    return false;
  }
  const int32_t num_pages = pages_ == nullptr ? 0 : pages_->num_pages(block);
  while (!HasRoomOnHost(1, num_pages)) {
    const EntryId least = eviction_.NextOnHost();
    if (least == kNoEntry || !eviction_.MayReplace(entry, least)) return false;
    Forget(cache_.block(least));
    if (!cache_.Contains(block)) return true;  // it stood behind
  }
  --host_use_.max_demotions;
  const BlockId on_host = pool_.Demote(block);
  cache_.Move(block, on_host);
  eviction_.SetOnHost(entry, true);
  NoteUnsealed(block);
  if (pages_ == nullptr) {
    copies_->push_back({block, on_host});
    ++num_copied_out_;
  } else {
    DemotePages(block, on_host);
  }
  NoteMove(on_host);
  return true;
}

// Exchanges the blocks on the host in a table for its last `num_blocks`, but for the tail, which it gets a copy of.
void BlockManager::Fetch(BlockTable& table, int32_t num_blocks, int32_t tail) {
  for (int32_t i = 0; num_blocks > 0; ++i) {
    const BlockId on_host = table.blocks_[i];
    if (i == tail || !pool_.IsHost(on_host)) continue;
    const BlockId own = table.blocks_.back();
    table.blocks_.pop_back();
    --num_blocks;
    table.Exchange(i, own);
    --table.num_on_host_;
    if (pages_ == nullptr) {
      copies_->push_back({on_host, own});
      ++num_copied_in_;
    } else {
      FetchPages(table, i, on_host);
    }
    // Otherwise it was dropped, or another table has fetched it, meanwhile: then the copy is this table's alone.
    if (cache_.Contains(on_host)) {
      MoveToDevice(on_host, own);
      if (integrity_) {
        const auto num_tokens = static_cast<int32_t>(cache_.tokens(own).size());
        ForPlaces(own, [&](BlockId place) { integrity_->Brought(place, num_tokens); });
      }
    } else if (pages_ != nullptr) {
      pages_->Drop(own);
    }
    pool_.Release(on_host);
  }
}

// A table has computed what is found on the host: its own block is found from now on.
void BlockManager::Adopt(BlockId on_host, BlockId own) {
  pool_.Acquire(on_host);
  MoveToDevice(on_host, own);
  NoteSealed(own, static_cast<int32_t>(cache_.tokens(own).size()));
  pool_.Release(on_host);
}

// Both blocks have holders.
void BlockManager::MoveToDevice(BlockId from, BlockId to) {
  pool_.UnmarkCached(from);
  pool_.MarkCached(to);
  if (pages_ != nullptr) pages_->Drop(from);
  cache_.Move(from, to);
  eviction_.SetOnHost(cache_.entry(to), false);
  NoteMove(to);
}

// The entry of `block` was on the other tier before.
void BlockManager::NoteMove(BlockId block) {
  if (!cache_.is_full(block)) return;
  const BlockHash& key = cache_.key(block);
  events_.Stored(key, KeyOf(cache_.parent(block)), cache_.tokens(block), TierOf(block));
  events_.Removed(key, pool_.IsHost(block) ? KvEvent::Tier::kDevice : KvEvent::Tier::kHost);
}

bool BlockManager::HasRoomOnHost(int32_t num_blocks, int32_t num_pages) const {
  return pool_.num_free_host() >= num_blocks && (pages_ == nullptr || pages_->num_free_host() >= num_pages);
}

bool BlockManager::MakeRoomOnHost(int32_t num_blocks, int32_t num_pages) {
  while (!HasRoomOnHost(num_blocks, num_pages)) {
    const EntryId least = eviction_.NextOnHost();
    if (least == kNoEntry) return false;
    Forget(cache_.block(least));
  }
  return true;
}

int32_t BlockManager::CountOnHost(const BlockTable& table) const {
  const absl::Span<const BlockId> blocks = table.blocks();
  return static_cast<int32_t>(
      std::count_if(blocks.begin(), blocks.end(), [this](BlockId block) { return pool_.IsHost(block); }));
}

bool BlockManager::SwapOut(BlockTable& table, std::vector<BlockCopy>* copies) {
  const int32_t size = BlocksFor(table.num_stored_);
  const int32_t num_pages = pages_ == nullptr ? 0 : NumPlaces(table, 0, size) - PagesToFetch(table);
  if (size == 0 || !MakeRoomOnHost(size - CountOnHost(table), num_pages)) return false;
  Truncate(table, size);
  for (int32_t i = size - 1; i >= 0; --i) {
    const BlockId block = table.blocks_[i];
    if (pool_.IsHost(block)) continue;
    table.Exchange(i, pool_.TakeHost());
    ++table.num_on_host_;
    if (pages_ == nullptr) {
      copies->push_back({block, table.blocks_[i]});
      ++num_copied_out_;
    } else {
      SwapOutPages(table, i, block, copies);
    }
    pool_.Release(block);
  }
  table.num_published_ = 0;
  table.hit_pending_ = false;
  return true;
}

void BlockManager::CopiesFailed(absl::Span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (const BlockId filled = BlockAt(copy.dst); cache_.Contains(filled)) Forget(filled);
  }
}

int32_t BlockManager::NumPlaces(const BlockTable& table, int32_t begin, int32_t end) const {
  if (pages_ == nullptr) return end - begin;
  int32_t places = 0;
  for (int32_t group = 0; group < pages_->num_groups(); ++group) {
    const BlockTable::Range paged = table.paged(group);
    places += std::max(0, std::min(end, paged.end) - std::max(begin, paged.begin));
  }
  return places;
}

bool BlockManager::HoldsAny(const BlockTable& table, const absl::flat_hash_set<BlockId>& places) const {
  const absl::Span<const BlockId> blocks = table.blocks();
  const auto is_one = [&places](BlockId place) { return places.contains(place); };
  if (pages_ == nullptr) return std::any_of(blocks.begin(), blocks.end(), is_one);
  for (int32_t group = 0; group < pages_->num_groups(); ++group) {
    const auto [begin, end] = table.paged(group);
    for (int32_t i = begin; i < end; ++i) {
      if (is_one(BlockId{static_cast<int32_t>(pages_->page(group, blocks[i]))})) return true;
    }
  }
  return false;
}

void BlockManager::KeepOffHost(const BlockTable& table) {
  for (const BlockId block : table.blocks_) {
    if (pool_.count(block) == 1 && cache_.Contains(block)) eviction_.KeepOffHost(cache_.entry(block));
  }
}

absl::Status BlockManager::CheckTables() const {
  for (const BlockTable* table = pool_.first_table(); table != nullptr; table = table->next_) {
    const int32_t on_host = CountOnHost(*table);
    if (on_host != table->num_on_host_) {
      return absl::InternalError(
          absl::StrFormat("a table holds %d blocks on the host, %d counted", on_host, table->num_on_host_));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
