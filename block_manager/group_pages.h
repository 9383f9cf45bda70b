#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"

namespace quire {

// Names one physical block of the KV pool when block ids are logical; 0 is the null block. Numbers from the number of
// device pages on name pages of the host tier.
enum class PageId : int32_t {};
inline constexpr PageId kNoPage{0};

// Where the blocks of a model with sliding windows stand in memory.
//
// Such a model has layer groups (model/layer_groups.h), and a block of tokens is needed by each of them for another
// time: by full attention as long as its sequence lives, by a window of w keys until w more tokens are stored. So block
// ids become logical: BlockManager, tables and prefix cache go on naming a block of tokens behind a prefix by one
// number, and each group gives it a page of the pool only while some table needs it there.
//
// A page is free, in use (some tables need its block in its group), or idle: no table needs it, but the block can still
// be found, so a later hit may. Idle pages are kept if their block has no holder: they go with it, in the order of
// eviction. Others have slid out of the windows of those who hold the block, and go one by one, the longest idle first.
// One pool serves all groups. Blocks of the host tier (BlockPool) have their pages in a second pool, that of the host:
// there a page is free, in use (by tables that are to be brought back) or kept with its block, and none slides out.
// All operations are O(groups) at most; none allocates. Not thread-safe.
class GroupPages {
 public:
  static constexpr int32_t kSlack = 1;  // tokens

  enum class Fate : uint8_t { kFree, kSlid, kKept };

  // Logical blocks and pages of a tier; the null ones count for the device.
  struct Sizes {
    int32_t num_blocks = 0;
    int32_t num_pages = 0;
  };

  // `windows`: by group, in keys that a query sees, itself included; 0: all.
  GroupPages(std::vector<int32_t> windows, int32_t block_size, Sizes device, Sizes host);

  int32_t num_groups() const { return static_cast<int32_t>(windows_.size()); }
  int32_t window(int32_t group) const { return windows_[group]; }
  int32_t num_full_groups() const { return num_full_groups_; }  // without a window

  // The first block whose keys a group sees from token `num_stored` on.
  int32_t FirstNeeded(int32_t group, int32_t num_stored) const {
    const int32_t first = windows_[group] == 0 ? 0 : num_stored - windows_[group] + 1;
    return first > 0 ? first / block_size_ : 0;
  }
  // Blocks before this one have slid out. A little later than need be: a fork may begin kSlack tokens further back.
  int32_t FirstKept(int32_t group, int32_t num_stored) const {
    return FirstNeeded(group, num_stored > kSlack ? num_stored - kSlack : 0);
  }

  // Pages that a sequence needs, computing a token at a time, until `num_tokens` are stored.
  static int64_t PagesForSequence(absl::Span<const int32_t> windows, int32_t block_size, int32_t num_tokens);

  // The page of a block, or kNoPage.
  PageId page(int32_t group, BlockId block) const { return PageId{page_of_[Index(group, block)]}; }
  bool Has(int32_t group, BlockId block) const { return page(group, block) != kNoPage; }
  int32_t num_pages(BlockId block) const;  // in all groups
  // Whose page it is; the null block if it is free.
  BlockId owner(PageId page) const {
    const int32_t owner = nodes_[static_cast<int32_t>(page)].owner;
    return owner < 0 ? kNullBlock : BlockId{owner % num_blocks_};
  }
  bool IsHost(PageId page) const { return static_cast<int32_t>(page) >= num_device_pages_; }

  // A first page for the block, of its tier, in use by one table. REQUIRES: one is free there.
  void Attach(int32_t group, BlockId block);
  // One more table needs the page. REQUIRES: Has.
  void Acquire(int32_t group, BlockId block);
  // One table less. `fate` is that of the page if it was the last one.
  void Release(int32_t group, BlockId block, Fate fate);
  // The device block has a holder again, who need not see it in each group: what was kept within windows has slid out.
  void SetUsed(BlockId block);
  // The block cannot be found any more: its idle pages are free.
  void Drop(BlockId block);
  // Frees the page that slid out first, and returns it. REQUIRES: num_slid() > 0.
  PageId DropOldestSlid();

  // Device pages that are free or can be made so.
  int32_t num_unused() const { return tiers_[0].num_free + num_idle(); }
  int32_t num_free() const { return tiers_[0].num_free; }
  int32_t num_slid() const { return num_slid_; }
  int32_t num_idle() const { return num_slid_ + tiers_[0].num_kept; }
  int32_t num_usable() const { return num_device_pages_ - 1; }
  int32_t num_host_pages() const { return static_cast<int32_t>(nodes_.size()) - num_device_pages_; }
  int32_t num_free_host() const { return tiers_[1].num_free; }
  int32_t users(int32_t group, BlockId block) const { return users_[Index(group, block)]; }
  bool IsKept(int32_t group, BlockId block) const {
    return Has(group, block) && users(group, block) == 0 && !nodes_[page_of_[Index(group, block)]].slid;
  }
  bool IsFree(PageId page) const { return nodes_[static_cast<int32_t>(page)].owner < 0; }
  int64_t num_dropped() const { return num_dropped_; }  // by DropOldestSlid

  // kInternal naming the first page that is not in exactly one state.
  absl::Status CheckInvariants() const;

 private:
  // Slid pages stand in a ring through the null page, the oldest first; free ones of a tier in a list through `next`.
  struct Node {
    int32_t prev = 0;
    int32_t next = 0;
    int32_t owner = -1;  // index into page_of_; -1: free
    bool slid = false;
  };

  struct Tier {
    int32_t first_free = 0;
    int32_t num_free = 0;
    int32_t num_kept = 0;
  };

  int32_t Index(int32_t group, BlockId block) const { return group * num_blocks_ + static_cast<int32_t>(block); }
  Tier& TierOf(int32_t page) { return tiers_[IsHost(PageId{page})]; }
  void LinkSlid(int32_t page);
  void UnlinkSlid(int32_t page);
  void PushFree(int32_t page);
  absl::Status CheckPages(int32_t begin, int32_t end) const;

  const std::vector<int32_t> windows_;
  const int32_t num_full_groups_;
  const int32_t block_size_;
  const int32_t num_blocks_;  // of both tiers
  const int32_t num_device_blocks_, num_device_pages_;
  std::vector<int32_t> page_of_;  // [group, block]
  std::vector<int32_t> users_;    // [group, block]: tables
  std::vector<Node> nodes_;       // by page
  Tier tiers_[2];                 // device, host
  int32_t num_slid_ = 0;
  int64_t num_dropped_ = 0;
};

}  // namespace quire
