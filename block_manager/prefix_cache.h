#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"
#include "block_manager/token_permutation.h"
#include "block_manager/treap.h"

namespace quire {

// The identity of a cached prefix: of a root (entry is kNoEntry, id is the root's hash) or of an entry (id.low is a
// serial number that is never given again). Children name their parent by it and not by its key, so that prefixes whose
// keys collide can never be mistaken for each other.
struct PrefixLink {
  EntryId entry = kNoEntry;
  BlockHash id;
  friend bool operator==(const PrefixLink&, const PrefixLink&) = default;
};

// Which block holds which tokens behind which prefix: at most one entry a block, everything allocated up front. An
// entry may move to another block and keeps its identity, so nothing behind it notices.
//
// An entry is full (block_size tokens) or a sealed tail (fewer: where a sequence ended). Full ones are found by key in
// a hash table with open addressing. Besides, all entries stand in the order of (parent, tokens), where the child of a
// parent that shares most tokens with a text is a neighbour of the text's own place.
//
// No tail is the beginning of another entry behind the same parent: whoever wants its tokens finds them there. Parents
// and tokens are compared exactly; a key only says where to look. The parent of an entry is a root or an entry.
//
// Knows nothing of counts: the owner erases an entry in the moment the pool hands its block to someone else.
// Not thread-safe: the engine thread owns it.
class PrefixCache {
 public:
  // `num_blocks` as in BlockPool, `block_size` tokens at most in each entry (4 bytes each are kept). `token_order`: the
  // order of tokens is that of their images.
  PrefixCache(int32_t num_blocks, int32_t block_size, const TokenPermutation& token_order = {});

  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  static PrefixLink Root(const BlockHash& root_hash) { return {kNoEntry, root_hash}; }

  // The block that holds `tokens` (block_size of them) behind `parent`, or kNullBlock. `key` is the chain hash of both.
  BlockId Find(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens) const;

  // The entry behind `parent` that begins with the most of `tokens` (at most block_size are looked at), and how many.
  // kNullBlock and 0 if none begins with the first. O(log entries).
  struct Match {
    BlockId block = kNullBlock;
    int32_t num_tokens = 0;
  };
  Match FindLongest(const PrefixLink& parent, absl::Span<const int32_t> tokens) const;

  // Makes `block` findable with 1 .. block_size tokens; `key` matters if it is full. REQUIRES: the block has no entry,
  // `parent` is alive, and no entry behind it begins with all of `tokens`. Returns the tail that is promoted, i.e.
  // whose tokens are the beginning of these: its entry is gone; kNullBlock if there was none.
  BlockId Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens, BlockId block);

  // Removes the entry of `block`; it must have one, and none behind it.
  void Erase(BlockId block);

  // The contents of `from` now stand in `to`: `from` must have an entry, `to` none.
  void Move(BlockId from, BlockId to);

  bool Contains(BlockId block) const { return At(block).serial != 0; }
  // Of a block's entry; it must have one.
  EntryId entry(BlockId block) const { return EntryId{entry_of_[Index(block)]}; }
  PrefixLink link(BlockId block) const { return {entry(block), {At(block).serial, 0}}; }
  const PrefixLink& parent(BlockId block) const { return At(block).parent; }
  const BlockHash& key(BlockId block) const { return At(block).key; }
  absl::Span<const int32_t> tokens(BlockId block) const { return At(block).tokens(); }
  bool has_children(BlockId block) const { return At(block).num_children > 0; }
  bool is_full(BlockId block) const { return At(block).num_tokens == block_size_; }
  // The block that holds an entry; kNullBlock for kNoEntry.
  BlockId block(EntryId entry) const { return entries_[Index(entry)].block; }

  // The entries behind `parent`, in order of their tokens: the first, and the one after a given one; kNullBlock: no
  // (more).
  BlockId FirstChild(const PrefixLink& parent) const;
  BlockId NextSibling(BlockId block) const;

  // False once the entry that `link` names was erased, whatever its block holds now. Roots live for ever.
  bool IsAlive(const PrefixLink& link) const {
    return link.entry == kNoEntry || entries_[Index(link.entry)].serial == link.id.low;
  }
  int32_t size() const { return size_; }

  // kInternal naming the first broken invariant: every entry is found from its own contents and no tail begins another
  // entry; slots, order and entries agree.
  absl::Status CheckInvariants() const;

 private:
  struct Entry {
    BlockId block = kNullBlock;  // whether there is an entry or not
    PrefixLink parent;
    const int32_t* first_token = nullptr;  // into tokens_, for ever
    int32_t num_tokens = 0;
    int32_t num_children = 0;
    uint64_t serial = 0;  // 0: no entry
    BlockHash key;        // of full entries
    absl::Span<const int32_t> tokens() const { return {first_token, static_cast<size_t>(num_tokens)}; }
  };

  // Orders entries by parent, then by tokens, a beginning before what it begins.
  struct Less {
    const PrefixCache* cache;
    bool operator()(int32_t a, int32_t b) const;
  };

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  static int32_t Index(EntryId entry) { return static_cast<int32_t>(entry); }
  const Entry& At(BlockId block) const { return entries_[entry_of_[Index(block)]]; }
  bool IsBefore(const Entry& entry, const PrefixLink& parent, absl::Span<const int32_t> tokens) const;
  uint32_t Home(const BlockHash& key) const { return static_cast<uint32_t>(key.low) & slot_mask_; }
  int32_t SharedTokens(int32_t index, const PrefixLink& parent, absl::Span<const int32_t> tokens) const;
  uint32_t SlotOf(int32_t entry) const;
  void EraseSlot(int32_t entry);
  BlockId BlockAt(int32_t entry) const { return entries_[entry].block; }
  absl::Status CheckEntry(BlockId block) const;
  absl::Status CheckOrder() const;

  int32_t block_size_;
  const TokenPermutation token_order_;
  std::vector<Entry> entries_;
  std::vector<int32_t> entry_of_;      // by block: always some entry, used or not
  std::unique_ptr<int32_t[]> tokens_;  // [entry, block_size]
  std::vector<int32_t> slots_;         // full entries; linear probing, at most half full; 0 is empty
  uint32_t slot_mask_ = 0;
  Treap<Less> order_;  // all that are used
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
};

}  // namespace quire
