#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"
#include "block_manager/group_pages.h"

namespace quire {

class BlockTable;

// Reference counts of all physical blocks, and the free ones.
//
// A block with count 0 is free (nothing worth keeping; the latest freed is the next to be given out) or cached (marked;
// whoever marked it decides when it goes). O(1) an operation besides what the cache does; allocates nothing.
//
// Only block tables hold blocks, and each registers itself here, so that counts can be verified.
//
// Not thread-safe: the engine thread owns it.
class BlockPool {
 public:
  // Who keeps cached blocks.
  class Cache {
   public:
    // A marked block has lost its last holder, or gets its first.
    virtual void OnUnused(BlockId block) = 0;
    virtual void OnUsed(BlockId block) = 0;
    // Unmarks at least one unused block. Called when no block is free and some cached one is unused.
    virtual void Evict() = 0;

   protected:
    ~Cache() = default;
  };

  // `num_blocks` counts the null block: num_blocks - 1 can be handed out. At least 2, at most 2^31 - 1. `cache`
  // outlives the pool's use of it.
  BlockPool(int32_t num_blocks, Cache* cache);
  ~BlockPool();  // no table may be left

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Fills `blocks` with distinct blocks of count 1, free ones before cached ones.
  // All or nothing: kResourceExhausted if fewer are unused, and then nothing has changed and nothing was evicted.
  absl::Status Allocate(absl::Span<BlockId> blocks);

  // One more holder. The block must be active, or cached: a hit brings it back.
  void Acquire(BlockId block);

  // One holder less. At count 0 a marked block is cached, any other free.
  void Release(BlockId block);

  // From now on the contents are worth keeping at count 0. The block must be active.
  void MarkCached(BlockId block);

  // The opposite. An unused block becomes free; the cache is not told.
  void UnmarkCached(BlockId block);

  // For tests: the Allocate that would hand out the n-th block from now on fails instead; 0: none does.
  void FailAtBlock(int64_t n) { fail_at_block_ = n; }

  int32_t num_blocks() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t num_unused() const { return num_free_ + num_unused_cached_; }
  int32_t num_unused_cached() const { return num_unused_cached_; }
  int32_t count(BlockId block) const { return nodes_[Index(block)].count; }
  bool is_cached(BlockId block) const { return nodes_[Index(block)].cached; }

  // What becomes of a page of the block that no table needs once this holder has let the block go.
  GroupPages::Fate FateOfPage(BlockId block) const {
    if (!is_cached(block)) return GroupPages::Fate::kFree;
    return count(block) > 1 ? GroupPages::Fate::kSlid : GroupPages::Fate::kKept;
  }

  // Live tables, in a list through BlockTable's own links; null: none.
  const BlockTable* first_table() const { return tables_; }

  // kInternal naming the first broken invariant: the list of free blocks, each block in exactly one state, and every
  // count equal to the number of tables that hold the block. O(blocks + table entries): for tests, and for idle moments
  // of debug builds.
  absl::Status CheckInvariants() const;

 private:
  friend class BlockTable;

  // 12 bytes a block.
  struct Node {
    int32_t count = 0;
    bool cached = false;
    int32_t next_free = 0;  // of free blocks; 0 ends the list
  };

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  void PushFree(int32_t index);
  absl::Status CheckFree() const;
  absl::Status CheckCounts() const;

  std::vector<Node> nodes_;
  int32_t first_free_ = 0;
  int32_t num_free_ = 0;
  int32_t num_unused_cached_ = 0;
  int64_t fail_at_block_ = 0;
  BlockTable* tables_ = nullptr;  // doubly linked list of live tables, through their own links
  Cache* const cache_;
};

}  // namespace quire
