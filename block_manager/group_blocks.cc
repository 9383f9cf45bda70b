#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_format.h"
#include "block_manager/block_manager.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

// What layer groups add to BlockManager: which blocks of a table have a page in which group.
namespace quire {

namespace {

// Of the unused pages, the part that slid out and may stay although pages are needed: hits that end where many requests
// part live there.
constexpr int32_t kSlidShare = 4;

}  // namespace

// Takes a free page, or makes one free: what slid out goes first while there is much of it, then what the order of
// eviction gives.
void BlockManager::AttachPage(int32_t group, BlockId block) {
  while (pages_->num_free() == 0) {
    if (pages_->num_slid() > pages_->num_unused() / kSlidShare || pool_.num_unused_cached() == 0) {
      const PageId dropped = pages_->DropOldestSlid();
      if (integrity_) integrity_->Unsealed(BlockId{static_cast<int32_t>(dropped)});
    } else {
      Evict();
    }
  }
  pages_->Attach(group, block);
  if (integrity_) integrity_->HandedOut(PlaceOf(group, block));
}

int64_t BlockManager::BlocksForSequence(int32_t num_tokens) const {
  if (pages_ == nullptr) return BlocksFor(num_tokens);
  int64_t pages = 0;
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    const int32_t window = pages_->window(g);
    pages += GroupPages::PagesForSequence({&window, 1}, block_size_, num_tokens);
  }
  return pages;
}

// Pages that the table lacks in a group to hold `total_tokens`, or, within a window, `paged_tokens` of them.
int32_t BlockManager::PagesWanted(const BlockTable& table, int32_t group, int32_t total_tokens,
                                  int32_t paged_tokens) const {
  const int32_t end = BlocksFor(pages_->window(group) == 0 ? total_tokens : paged_tokens);
  return std::max(0, end - table.paged_[group].end);
}

int32_t BlockManager::PagesMissing(const BlockTable& table, int32_t total_tokens) const {
  const int32_t copy = BlocksToCopy(table, SharedTail(table, total_tokens));
  const int32_t fresh = std::max(0, BlocksFor(total_tokens) - table.size());
  // Without logical blocks pages are of no use: as if there were none.
  if (fresh + copy + table.num_on_host_ > pool_.num_unused()) return num_usable() + 1;
  int32_t missing = copy * pages_->num_groups() + PagesToFetch(table);
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    missing += PagesWanted(table, g, total_tokens, PagedTokens(table, total_tokens));
  }
  return missing;
}

// Pages on the host that the table needs.
int32_t BlockManager::PagesToFetch(const BlockTable& table) const {
  if (table.num_on_host_ == 0) return 0;
  int32_t pages = 0;
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    for (int32_t i = table.paged_[g].begin; i < table.paged_[g].end; ++i) pages += pool_.IsHost(table.blocks_[i]);
  }
  return pages;
}

bool BlockManager::RoomToCopyPages(const BlockTable& table, int32_t total_tokens) const {
  int32_t wanted = pages_->num_groups() + PagesToFetch(table);
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    wanted += PagesWanted(table, g, total_tokens, PagedTokens(table, total_tokens));
  }
  return wanted <= pages_->num_unused();
}

void BlockManager::AttachPages(BlockTable& table, int32_t total_tokens, int32_t paged_tokens) {
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    const int32_t wanted = PagesWanted(table, g, total_tokens, paged_tokens);
    for (int32_t i = 0; i < wanted; ++i) AttachPage(g, table.blocks_[table.paged_[g].end++]);
  }
}

// The table's part-filled last block was `src` and is now `dst`.
void BlockManager::CopyPages(BlockId src, BlockId dst) {
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    AttachPage(g, dst);
    copies_->push_back({PlaceOf(g, src), PlaceOf(g, dst)});
    pages_->Release(g, src, pool_.FateOfPage(src));
  }
}

// The contents of an unused block go to one of the host, for which there is room.
void BlockManager::DemotePages(BlockId block, BlockId on_host) {
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    if (!pages_->Has(g, block)) continue;
    pages_->Attach(g, on_host);
    copies_->push_back({PlaceOf(g, block), PlaceOf(g, on_host)});
    ++num_copied_out_;
    pages_->Release(g, on_host, GroupPages::Fate::kKept);
  }
  pages_->Drop(block);
}

// The table's block number `index` was `on_host`. Its new one gets the pages that the table needs. Of what can be found
// it gets the others too, as if they had slid out, if any page is unused: that keeps their number.
void BlockManager::FetchPages(const BlockTable& table, int32_t index, BlockId on_host) {
  const BlockId own = table.blocks_[index];
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    const bool needed = table.paged_[g].begin <= index && index < table.paged_[g].end;
    if (!needed) {
      if (!cache_.Contains(on_host) || !pages_->Has(g, on_host) || pages_->num_unused() == 0) continue;
      pages_->Acquire(g, on_host);  // to make room may mean to forget it
    }
    AttachPage(g, own);
    copies_->push_back({PlaceOf(g, on_host), PlaceOf(g, own)});
    ++num_copied_in_;
    pages_->Release(g, on_host, pool_.FateOfPage(on_host));
    if (!needed) pages_->Release(g, own, GroupPages::Fate::kSlid);
  }
}

// The table's block number `index` was `from` and is now one of the host, for which there is room.
void BlockManager::SwapOutPages(const BlockTable& table, int32_t index, BlockId from, std::vector<BlockCopy>* copies) {
  const BlockId on_host = table.blocks_[index];
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    if (index < table.paged_[g].begin || index >= table.paged_[g].end) continue;
    pages_->Attach(g, on_host);
    copies->push_back({PlaceOf(g, from), PlaceOf(g, on_host)});
    ++num_copied_out_;
    pages_->Release(g, from, pool_.FateOfPage(from));
  }
}

int32_t BlockManager::ReserveStepPages(BlockTable& table, int32_t step_end, std::vector<BlockCopy>* copies) {
  QUIRE_CHECK(BlocksFor(step_end) <= table.size());
  copies_ = copies;
  const absl::Cleanup done = [this] { copies_ = nullptr; };
  const auto wanted = [&](int32_t end) {
    int32_t pages = 0;
    for (int32_t g = 0; g < pages_->num_groups(); ++g) {
      if (pages_->window(g) > 0) pages += PagesWanted(table, g, 0, end);
    }
    return pages;
  };
  // As a rule all of it fits; otherwise whole blocks fewer.
  while (wanted(step_end) > pages_->num_unused()) step_end = (step_end - 1) / block_size_ * block_size_;
  AttachPages(table, 0, step_end);
  return step_end;
}

// Takes the pages that a new table needs for the tokens stored in its blocks. False if a group lacks one of them.
bool BlockManager::SharePages(BlockTable& table) {
  const int32_t end = table.size();
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    for (int32_t i = pages_->FirstNeeded(g, table.num_stored_); i < end; ++i) {
      if (!pages_->Has(g, table.blocks_[i])) return false;
    }
  }
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    const int32_t begin = std::min(pages_->FirstNeeded(g, table.num_stored_), end);
    for (int32_t i = begin; i < end; ++i) pages_->Acquire(g, table.blocks_[i]);
    table.paged_[g] = {begin, end};
  }
  return true;
}

void BlockManager::SlideOut(BlockTable& table) {
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    BlockTable::Range& range = table.paged_[g];
    const int32_t begin = std::min(pages_->FirstKept(g, table.num_stored_), range.end);
    for (; range.begin < begin; ++range.begin) {
      const BlockId block = table.blocks_[range.begin];
      pages_->Release(g, block, cache_.Contains(block) ? GroupPages::Fate::kSlid : GroupPages::Fate::kFree);
    }
  }
}

// Cuts a match to the longest one at whose end every group still has what its window holds.
void BlockManager::CutToPages(BlockTable& table, const PrefixKeys& keys, PrefixMatch* match) {
  absl::InlinedVector<int32_t, 8> run(pages_->num_groups(), 0);  // how many blocks before here have pages, one by one
  int32_t best = 0;
  for (int32_t i = 0; i < table.size(); ++i) {
    if (!pool_.IsHost(table.blocks_[i])) pages_->SetUsed(table.blocks_[i]);
    const int32_t end = std::min((i + 1) * block_size_, match->num_tokens);
    bool all = true;
    for (int32_t g = 0; g < pages_->num_groups(); ++g) {
      run[g] = pages_->Has(g, table.blocks_[i]) ? run[g] + 1 : 0;
      all = all && i + 1 - pages_->FirstNeeded(g, end) <= run[g];
    }
    if (all) best = end;
  }
  if (best < match->num_tokens) {
    Truncate(table, BlocksFor(best));
    table.num_stored_ = best;
    table.num_published_ = table.size();
    table.hit_pending_ = table.num_published_ > 0;
    table.link_ = table.empty() ? PrefixCache::Root(keys.root) : cache_.link(table.blocks_.back());
    *match = {.num_tokens = best, .miss = MissReason::kSlidOut, .missed_block = table.size()};
  }
  QUIRE_CHECK(SharePages(table));
  if (integrity_) NoteFound(table);
}

void BlockManager::NoteFound(const BlockTable& table) {
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    for (int32_t i = table.paged_[g].begin; i < table.paged_[g].end; ++i) {
      if (!pool_.IsHost(table.blocks_[i])) integrity_->Found(PlaceOf(g, table.blocks_[i]));
    }
  }
}

absl::Status BlockManager::CheckPages() const {
  QUIRE_RETURN_IF_ERROR(pages_->CheckInvariants());
  std::vector<int32_t> users(static_cast<size_t>(pages_->num_groups()) * pool_.num_all_blocks(), 0);
  for (const BlockTable* table = pool_.first_table(); table != nullptr; table = table->next_) {
    for (int32_t g = 0; g < pages_->num_groups(); ++g) {
      const BlockTable::Range range = table->paged_[g];
      const int32_t stored_end = BlocksFor(table->num_stored_);
      if (range.begin > std::min(pages_->FirstNeeded(g, table->num_stored_), stored_end) || range.end < stored_end ||
          range.end > table->size()) {
        return absl::InternalError(absl::StrFormat("group %d has blocks %d to %d of a table of %d with %d tokens", g,
                                                   range.begin, range.end, table->size(), table->num_stored_));
      }
      for (int32_t i = range.begin; i < range.end; ++i) {
        ++users[static_cast<size_t>(g) * pool_.num_all_blocks() + static_cast<int32_t>(table->blocks_[i])];
      }
    }
  }
  for (int32_t g = 0; g < pages_->num_groups(); ++g) {
    const int32_t* const users_of = users.data() + static_cast<size_t>(g) * pool_.num_all_blocks();
    const bool is_full = pages_->window(g) == 0;
    for (int32_t i = 1; i < pool_.num_all_blocks(); ++i) {
      const BlockId block{i};
      const int32_t used = users_of[i];
      const bool has = pages_->Has(g, block);
      if (pages_->users(g, block) == used && !has && used == 0 && !is_full) continue;
      const bool findable = cache_.Contains(block);
      const bool must_have = used > 0 || (is_full && findable);
      if (pages_->users(g, block) != used || (must_have && !has) || (used == 0 && has && !findable) ||
          (pages_->IsKept(g, block) && pool_.count(block) > 0 && !pool_.IsHost(block))) {
        return absl::InternalError(
            absl::StrFormat("block %d has page %d in group %d: %d users, %d counted, findable %d", i,
                            static_cast<int32_t>(pages_->page(g, block)), g, used, pages_->users(g, block), findable));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
