#include "block_manager/group_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace quire {

GroupPages::GroupPages(std::vector<int32_t> windows, int32_t block_size, int32_t num_blocks, int32_t num_pages)
    : windows_(std::move(windows)),
      num_full_groups_(static_cast<int32_t>(std::count(windows_.begin(), windows_.end(), 0))),
      block_size_(block_size),
      num_blocks_(num_blocks),
      page_of_(windows_.size() * static_cast<size_t>(num_blocks), 0),
      users_(page_of_.size(), 0),
      nodes_(num_pages) {
  QUIRE_CHECK(!windows_.empty() && num_pages >= 2 && page_of_.size() <= size_t{INT32_MAX});
  for (int32_t page = num_pages - 1; page > 0; --page) PushFree(page);
}

int64_t GroupPages::PagesForSequence(absl::Span<const int32_t> windows, int32_t block_size, int32_t num_tokens) {
  const auto blocks_for = [&](int64_t tokens) { return (tokens + block_size - 1) / block_size; };
  int64_t pages = 0;
  for (const int32_t window : windows) {
    const int64_t all = blocks_for(num_tokens);
    // Kept tokens and the one that is computed, anywhere within blocks.
    pages += window == 0 ? all : std::min(all, blocks_for(int64_t{window} + kSlack) + 1);
  }
  return pages;
}

void GroupPages::LinkSlid(int32_t page) {
  const int32_t prev = nodes_[0].prev;
  nodes_[page].prev = prev;
  nodes_[page].next = 0;
  nodes_[page].slid = true;
  nodes_[0].prev = nodes_[prev].next = page;
  ++num_slid_;
}

void GroupPages::UnlinkSlid(int32_t page) {
  nodes_[nodes_[page].prev].next = nodes_[page].next;
  nodes_[nodes_[page].next].prev = nodes_[page].prev;
  nodes_[page].slid = false;
  --num_slid_;
}

void GroupPages::PushFree(int32_t page) {
  if (nodes_[page].owner >= 0) page_of_[nodes_[page].owner] = 0;
  nodes_[page].owner = -1;
  nodes_[page].next = first_free_;
  first_free_ = page;
  ++num_free_;
}

void GroupPages::Attach(int32_t group, BlockId block) {
  QUIRE_CHECK(num_free_ > 0 && !Has(group, block));
  const int32_t page = first_free_, index = Index(group, block);
  first_free_ = nodes_[page].next;
  --num_free_;
  nodes_[page].owner = index;
  page_of_[index] = page;
  users_[index] = 1;
}

void GroupPages::Acquire(int32_t group, BlockId block) {
  const int32_t index = Index(group, block), page = page_of_[index];
  QUIRE_CHECK(page != 0);
  if (users_[index]++ > 0) return;
  if (nodes_[page].slid) {
    UnlinkSlid(page);
  } else {
    --num_kept_;
  }
}

void GroupPages::Release(int32_t group, BlockId block, Fate fate) {
  const int32_t index = Index(group, block), page = page_of_[index];
  QUIRE_CHECK(page != 0 && users_[index] > 0);
  if (--users_[index] > 0) return;
  switch (fate) {
    case Fate::kFree:
      return PushFree(page);
    case Fate::kSlid:
      return LinkSlid(page);
    case Fate::kKept:
      ++num_kept_;
  }
}

void GroupPages::SetUsed(BlockId block) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (windows_[group] == 0 || !IsKept(group, block)) continue;
    --num_kept_;
    LinkSlid(page_of_[Index(group, block)]);
  }
}

void GroupPages::Drop(BlockId block) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    const int32_t index = Index(group, block), page = page_of_[index];
    if (page == 0 || users_[index] > 0) continue;
    if (nodes_[page].slid) {
      UnlinkSlid(page);
    } else {
      --num_kept_;
    }
    PushFree(page);
  }
}

PageId GroupPages::DropOldestSlid() {
  const int32_t page = nodes_[0].next;
  QUIRE_CHECK(page != 0);
  UnlinkSlid(page);
  PushFree(page);
  ++num_dropped_;
  return PageId{page};
}

absl::Status GroupPages::CheckInvariants() const {
  int32_t free = 0, slid = 0, kept = 0, in_use = 0;
  for (int32_t page = first_free_; page != 0 && free <= num_free_; page = nodes_[page].next) {
    if (nodes_[page].owner >= 0 || nodes_[page].slid) {
      return absl::InternalError(absl::StrFormat("page %d is free and has an owner", page));
    }
    ++free;
  }
  for (int32_t page = nodes_[0].next; page != 0 && slid <= num_slid_; page = nodes_[page].next) {
    const int32_t owner = nodes_[page].owner;
    if (!nodes_[page].slid || nodes_[nodes_[page].next].prev != page || owner < 0 || users_[owner] != 0) {
      return absl::InternalError(absl::StrFormat("page %d stands wrongly among those that slid out", page));
    }
    ++slid;
  }
  for (size_t index = 0; index < page_of_.size(); ++index) {
    const int32_t page = page_of_[index];
    if (page == 0 ? users_[index] != 0 : nodes_[page].owner != static_cast<int32_t>(index)) {
      return absl::InternalError(absl::StrFormat("block %d of group %d: page %d, %d users", index % num_blocks_,
                                                 index / num_blocks_, page, users_[index]));
    }
    in_use += users_[index] > 0;
    kept += page != 0 && users_[index] == 0 && !nodes_[page].slid;
  }
  if (free == num_free_ && slid == num_slid_ && kept == num_kept_ && in_use + free + slid + kept == num_usable()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat("%d pages in use, %d free (%d counted), %d slid (%d), %d kept (%d) of %d",
                                             in_use, free, num_free_, slid, num_slid_, kept, num_kept_, num_usable()));
}

}  // namespace quire
