#pragma once

#include <cstdint>
#include <utility>
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
// Blocks of the host tier come behind those of the device: num_blocks, num_blocks + 1, ... They are never handed out;
// contents move there, and tables hold them only until they are brought back.
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
    // Makes at least one device block free: unmarks an unused one, or demotes it. Called when none is free and some
    // cached one is unused.
    virtual void Evict() = 0;

   protected:
    ~Cache() = default;
  };

  // `num_blocks` counts the null block: num_blocks - 1 can be handed out. At least 2, at most 2^31 - 1. `cache`
  // outlives the pool's use of it. `num_host_blocks`: of the host tier.
  BlockPool(int32_t num_blocks, Cache* cache, int32_t num_host_blocks = 0);
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

  // An unused cached device block becomes free, and a free host block, which is returned, cached in its place; the
  // cache is not told. REQUIRES: num_free_host() > 0.
  BlockId Demote(BlockId block);

  // A free host block gets its first holder. REQUIRES: num_free_host() > 0.
  BlockId TakeHost();

  // For tests: the Allocate that would hand out the n-th block from now on fails instead; 0: none does. Returns what is
  // left of the number set before, 0 if that has failed.
  int64_t FailAtBlock(int64_t n) { return std::exchange(fail_at_block_, n); }

  int32_t num_blocks() const { return num_blocks_; }                              // of the device
  int32_t num_all_blocks() const { return static_cast<int32_t>(nodes_.size()); }  // and of the host
  int32_t num_host_blocks() const { return num_all_blocks() - num_blocks_; }
  bool IsHost(BlockId block) const { return Index(block) >= num_blocks_; }
  int32_t num_unused() const { return tiers_[0].num_free + tiers_[0].num_unused_cached; }
  int32_t num_unused_cached() const { return tiers_[0].num_unused_cached; }
  int32_t num_free_host() const { return tiers_[1].num_free; }
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

  struct Tier {
    int32_t first_free = 0;
    int32_t num_free = 0;
    int32_t num_unused_cached = 0;
  };

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  Tier& TierOf(int32_t index) { return index < num_blocks_ ? tiers_[0] : tiers_[1]; }
  void PushFree(int32_t index);
  int32_t PopFree(Tier& tier);
  absl::Status CheckTier(const Tier& tier, int32_t begin, int32_t end) const;
  absl::Status CheckCounts() const;

  const int32_t num_blocks_;
  std::vector<Node> nodes_;
  Tier tiers_[2];  // device, host
  int64_t fail_at_block_ = 0;
  BlockTable* tables_ = nullptr;  // doubly linked list of live tables, through their own links
  uint64_t last_stamp_ = 0;       // of BlockTable::stamp
  Cache* const cache_;
};

}  // namespace quire
