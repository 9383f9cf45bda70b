#include "block_manager/group_pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace quire {

GroupPages::GroupPages(std::vector<int32_t> windows, int32_t block_size, Sizes device, Sizes host)
    : windows_(std::move(windows)),
      num_full_groups_(static_cast<int32_t>(std::count(windows_.begin(), windows_.end(), 0))),
      block_size_(block_size),
      num_blocks_(device.num_blocks + host.num_blocks),
      num_device_blocks_(device.num_blocks),
      num_device_pages_(device.num_pages),
      page_of_(windows_.size() * static_cast<size_t>(num_blocks_), 0),
      users_(page_of_.size(), 0),
      nodes_(int64_t{device.num_pages} + host.num_pages) {
  QUIRE_CHECK(!windows_.empty() && device.num_pages >= 2 && page_of_.size() <= size_t{INT32_MAX});
  for (auto page = static_cast<int32_t>(nodes_.size()) - 1; page > 0; --page) PushFree(page);
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

int32_t GroupPages::num_pages(BlockId block) const {
  int32_t pages = 0;
  for (int32_t group = 0; group < num_groups(); ++group) pages += Has(group, block);
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
  Tier& tier = TierOf(page);
  nodes_[page].next = tier.first_free;
  tier.first_free = page;
  ++tier.num_free;
}

void GroupPages::Attach(int32_t group, BlockId block) {
  Tier& tier = tiers_[static_cast<int32_t>(block) >= num_device_blocks_];
  QUIRE_CHECK(tier.num_free > 0 && !Has(group, block));
  const int32_t page = tier.first_free, index = Index(group, block);
  tier.first_free = nodes_[page].next;
  --tier.num_free;
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
    --TierOf(page).num_kept;
  }
}

void GroupPages::Release(int32_t group, BlockId block, Fate fate) {
  const int32_t index = Index(group, block), page = page_of_[index];
  QUIRE_CHECK(page != 0 && users_[index] > 0);
  if (--users_[index] > 0) return;
  if (fate == Fate::kFree) return PushFree(page);
  if (fate == Fate::kSlid && !IsHost(PageId{page})) return LinkSlid(page);
  ++TierOf(page).num_kept;
}

void GroupPages::SetUsed(BlockId block) {
  for (int32_t group = 0; group < num_groups(); ++group) {
    if (windows_[group] == 0 || !IsKept(group, block)) continue;
    --tiers_[0].num_kept;
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
      --TierOf(page).num_kept;
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
  int32_t slid = 0;
  for (int32_t page = nodes_[0].next; page != 0 && slid <= num_slid_; page = nodes_[page].next) {
    const int32_t owner = nodes_[page].owner;
    if (!nodes_[page].slid || nodes_[nodes_[page].next].prev != page || owner < 0 || users_[owner] != 0 ||
        IsHost(PageId{page})) {
      return absl::InternalError(absl::StrFormat("page %d stands wrongly among those that slid out", page));
    }
    ++slid;
  }
  if (slid != num_slid_) return absl::InternalError(absl::StrFormat("%d pages slid, %d counted", slid, num_slid_));
  for (int32_t index = 0, group = 0; group < static_cast<int32_t>(windows_.size()); ++group) {
    for (int32_t block = 0; block < num_blocks_; ++block, ++index) {
      const int32_t page = page_of_[index];
      const bool on_host = block >= num_device_blocks_;
      if (page == 0 ? users_[index] != 0 : nodes_[page].owner != index || IsHost(PageId{page}) != on_host) {
        return absl::InternalError(
            absl::StrFormat("block %d of group %d: page %d, %d users", block, group, page, users_[index]));
      }
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckPages(1, num_device_pages_));
  return CheckPages(num_device_pages_, static_cast<int32_t>(nodes_.size()));
}

// The pages begin .. end - 1 are those of a tier.
absl::Status GroupPages::CheckPages(int32_t begin, int32_t end) const {
  const Tier& tier = tiers_[begin >= num_device_pages_];
  int32_t free = 0;
  for (int32_t page = tier.first_free; page != 0 && free <= tier.num_free; page = nodes_[page].next, ++free) {
    if (nodes_[page].owner >= 0 || nodes_[page].slid || page < begin || page >= end) {
      return absl::InternalError(absl::StrFormat("page %d is free and has an owner, or of the other tier", page));
    }
  }
  int32_t in_use = 0, slid = 0, kept = 0;
  for (int32_t page = begin; page < end; ++page) {
    const int32_t owner = nodes_[page].owner;
    if (owner < 0) continue;
    if (page_of_[owner] != page) return absl::InternalError(absl::StrFormat("page %d is not its owner's", page));
    ++(users_[owner] > 0 ? in_use : nodes_[page].slid ? slid : kept);
  }
  if (free == tier.num_free && kept == tier.num_kept && in_use + free + slid + kept == end - begin) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat("%d pages in use, %d free (%d counted), %d slid, %d kept (%d) of %d",
                                             in_use, free, tier.num_free, slid, kept, tier.num_kept, end - begin));
}

}  // namespace quire
