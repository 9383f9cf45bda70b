#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"

namespace quire {

// The identity of a cached prefix: of a root (block is kNullBlock, id is the root's hash) or of an entry (id.low is a
// serial number that is never given again). Children name their parent by it and not by its key, so that prefixes whose
// keys collide can never be mistaken for each other.
struct PrefixLink {
  BlockId block = kNullBlock;
  BlockHash id;
  friend bool operator==(const PrefixLink&, const PrefixLink&) = default;
};

// Which block holds which tokens behind which prefix: a hash table with open addressing, at most one entry a block,
// everything allocated up front. Find compares parent and tokens exactly; the key only says where to look.
//
// Knows nothing of counts: the owner erases an entry in the moment the pool hands its block to someone else.
// Not thread-safe: the engine thread owns it.
class PrefixCache {
 public:
  // `num_blocks` as in BlockPool, `block_size` tokens in each entry (4 bytes each are kept).
  PrefixCache(int32_t num_blocks, int32_t block_size);

  static PrefixLink Root(const BlockHash& root_hash) { return {kNullBlock, root_hash}; }

  // The block that holds `tokens` (block_size of them) behind `parent`, or kNullBlock. `key` is the chain hash of both.
  BlockId Find(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens) const;

  // Makes `block` findable. Neither the block nor the contents may have an entry.
  void Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens, BlockId block);

  // Removes the entry of `block`; it must have one.
  void Erase(BlockId block);

  bool Contains(BlockId block) const { return entries_[Index(block)].serial != 0; }
  // The link of a block's entry; it must have one.
  PrefixLink link(BlockId block) const { return {block, {entries_[Index(block)].serial, 0}}; }
  // False once the entry that `link` names was erased, whatever its block holds now. Roots live for ever.
  bool IsAlive(const PrefixLink& link) const {
    return link.block == kNullBlock || entries_[Index(link.block)].serial == link.id.low;
  }
  int32_t size() const { return size_; }

  // kInternal naming the first broken invariant: every entry is found from its own key, and slots and entries agree.
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    BlockHash key;
    PrefixLink parent;
    uint64_t serial = 0;  // 0: no entry
  };

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  uint32_t Home(const BlockHash& key) const { return static_cast<uint32_t>(key.low) & slot_mask_; }
  const int32_t* tokens(BlockId block) const { return tokens_.get() + int64_t{Index(block)} * block_size_; }
  uint32_t SlotOf(BlockId block) const;

  int32_t block_size_;
  std::vector<Entry> entries_;         // by block
  std::unique_ptr<int32_t[]> tokens_;  // [num_blocks, block_size]
  std::vector<BlockId> slots_;         // linear probing, at most half full; kNullBlock is empty
  uint32_t slot_mask_ = 0;
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
};

}  // namespace quire
