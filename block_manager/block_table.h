#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "block_manager/block.h"
#include "block_manager/block_pool.h"
#include "block_manager/group_pages.h"
#include "block_manager/prefix_cache.h"

namespace quire {

// The physical blocks of one sequence in order of position: logical block i holds tokens i * block_size onward.
//
// Each entry is one count of the block in the pool. Entries are only appended, by BlockManager, but for one: the block
// that is written next is exchanged for a copy of the table's own if others can see it (BlockManager::Reserve), and
// those that were found on the host are exchanged for device blocks. The
// table gives all blocks back at once, tail first, so that eviction takes tails before heads. Move-only. Must not
// outlive its pool. Owned and used by the engine thread.
class BlockTable {
 public:
  // `pages`: null if blocks stand for themselves in memory. Both outlive the table.
  explicit BlockTable(BlockPool* pool, GroupPages* pages = nullptr);
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable();

  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
  bool empty() const { return blocks_.empty(); }
  absl::Span<const BlockId> blocks() const { return blocks_; }
  // Changes whenever an entry is exchanged or taken away, and no two tables of a pool ever have the same: while it
  // stays, entries were only appended. Never 0.
  uint64_t stamp() const { return stamp_; }

  // Of these, blocks of the host tier: found there, and brought back by the next Reserve. Nobody may read or write
  // through the table before.
  int32_t num_on_host() const { return num_on_host_; }

  // Leading tokens that are stored: the next one is written behind them.
  int32_t num_stored() const { return num_stored_; }

  // How many leading blocks stand in the prefix cache, as this table's blocks or as equal ones of other tables.
  int32_t num_published() const { return num_published_; }

  // With layer groups: the blocks that hold a page for this table in a group, [begin, end) of size().
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
    int32_t size() const { return end - begin; }
  };
  Range paged(int32_t group) const { return paged_[group]; }

  // The index of a token's K and V in the cache: block * block_size + offset. `position` must lie in the table.
  // Not with layer groups.
  int32_t slot(int32_t position, int32_t block_size) const {
    return static_cast<int32_t>(blocks_[position / block_size]) * block_size + position % block_size;
  }

  // Room for `num_blocks` entries, so that appending allocates nothing.
  void ReserveCapacity(int32_t num_blocks) { blocks_.reserve(num_blocks + 1); }  // one more while one is exchanged

  // Gives all blocks back, tail first. Keeps the capacity.
  void Clear();

 private:
  friend class BlockManager;
  friend class BlockPool;

  void Register();
  void Unregister();
  void TakeFrom(BlockTable& other);
  void ReleasePages();
  void Restamp() { stamp_ = ++pool_->last_stamp_; }
  void Exchange(int32_t index, BlockId block) {
    blocks_[index] = block;
    Restamp();
  }

  // What every step touches comes first.
  std::vector<BlockId> blocks_;
  uint64_t stamp_ = 0;
  int32_t num_stored_ = 0;
  int32_t num_on_host_ = 0;
  bool copy_pending_ = false;  // the block of token num_stored_ is a copy that no completed step is known to have made
  // Others may see the block of token num_stored_: set when the table forks, is forked, sealed or matched inside a
  // block.
  mutable bool tail_may_be_shared_ = false;
  bool hit_pending_ = false;  // the leading blocks were matched, and the hit is not counted yet
  int32_t num_published_ = 0;
  PrefixLink link_;    // the entry of block num_published_ - 1; the root's if there is none
  int32_t epoch_ = 0;  // of the manager when the first block came
  BlockPool* pool_;
  GroupPages* pages_;
  BlockTable* prev_ = nullptr;
  BlockTable* next_ = nullptr;
  std::unique_ptr<Range[]> paged_;  // by group; null without groups
};

}  // namespace quire
