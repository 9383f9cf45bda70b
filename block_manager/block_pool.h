#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"

namespace quire {

class BlockTable;

// Reference counts of all physical blocks, and the order in which unused ones are given out again.
//
// Blocks with count 0 stand in one queue. Free ones (nothing worth keeping) are at its front and go first; cached ones
// (marked by the prefix cache) follow, longest unused first. Every operation is O(1) a block and allocates nothing.
//
// Only block tables hold blocks, and each registers itself here, so that counts can be verified.
//
// Not thread-safe: the engine thread owns it.
class BlockPool {
 public:
  // Called for each cached block that Allocate takes over, before it is handed out: its contents must stop being
  // findable.
  using EvictFn = void (*)(void* context, BlockId block);

  // `num_blocks` counts the null block: num_blocks - 1 can be handed out. At least 2, at most 2^31 - 1.
  BlockPool(int32_t num_blocks, EvictFn on_evict, void* context);
  ~BlockPool();  // no table may be left

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Fills `blocks` with distinct blocks of count 1, free ones before cached ones.
  // All or nothing: kResourceExhausted if fewer are unused, and then nothing has changed and nothing was evicted.
  absl::Status Allocate(absl::Span<BlockId> blocks);

  // One more holder. The block must be active, or cached: a hit brings it back.
  void Acquire(BlockId block);

  // One holder less. At count 0 a marked block becomes the youngest cached one, any other the next to be given out.
  void Release(BlockId block);

  // From now on the contents are worth keeping at count 0. The block must be active.
  void MarkCached(BlockId block);

  // The opposite, when the prefix cache drops a block by itself. An unused block moves to the front of the queue.
  void UnmarkCached(BlockId block);

  int32_t num_blocks() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t num_unused() const { return num_unused_; }
  int32_t num_unused_cached() const { return num_unused_cached_; }
  int32_t count(BlockId block) const { return nodes_[Index(block)].count; }
  bool is_cached(BlockId block) const { return nodes_[Index(block)].cached; }

  // kInternal naming the first broken invariant: the queue's order, each block in exactly one state, and every count
  // equal to the number of tables that hold the block. O(blocks + table entries): for tests, and for idle moments of
  // debug builds.
  absl::Status CheckInvariants() const;

 private:
  friend class BlockTable;

  // 16 bytes a block. prev and next mean something at count 0 only.
  struct Node {
    int32_t count = 0;
    bool cached = false;
    int32_t prev = 0;
    int32_t next = 0;
  };

  // The null block is never in use, so its node serves as head and tail of the queue.
  static constexpr int32_t kSentinel = static_cast<int32_t>(kNullBlock);

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  void LinkBetween(int32_t prev, int32_t index, int32_t next);
  void LinkUnused(int32_t index);
  void Unlink(int32_t index);
  absl::Status CheckQueue() const;
  absl::Status CheckCounts() const;

  std::vector<Node> nodes_;
  int32_t num_unused_ = 0;
  int32_t num_unused_cached_ = 0;
  BlockTable* tables_ = nullptr;  // doubly linked list of live tables, through their own links
  EvictFn on_evict_;
  void* context_;
};

}  // namespace quire
