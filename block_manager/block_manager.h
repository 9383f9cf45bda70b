#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "block_manager/block.h"
#include "block_manager/block_pool.h"
#include "block_manager/block_table.h"
#include "block_manager/prefix_cache.h"

namespace quire {

struct BlockManagerOptions {
  int32_t num_blocks = 0;  // the null block included; [2, 2^31 / block_size)
  int32_t block_size = 0;  // tokens, >= 1
  bool enable_prefix_cache = true;
  // A hit that ends inside a block is used if it gives at least as many tokens of that block: the time of one block
  // copy over the time of computing one token, rounded up. In practice a copy is cheaper than any token. >= 1;
  // block_size switches such hits off.
  int32_t min_partial_tokens = 1;
  // The chain hash. Only tests give another one, to force collisions; MakeEngineRequest hashes with ChainHash.
  BlockHash (*chain_hash)(const BlockHash& parent, absl::Span<const int32_t> tokens) = &ChainHash;
};

// Contents of `src` that `dst` needs before the next step writes anything.
struct BlockCopy {
  BlockId src = kNullBlock;
  BlockId dst = kNullBlock;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

struct BlockStats {
  // free + cached + active = total, the null block not counted.
  int32_t total = 0, free = 0, cached = 0, active = 0;
  int64_t evictions = 0;  // cached blocks taken over so far
};

// Why a match ended where it did.
enum class MissReason : uint8_t {
  kNone,          // it did not: all that may be reused was found
  kCacheOff,      // the prefix cache is off
  kNeverSeen,     // nobody has stored these tokens behind this prefix, as far as is remembered
  kCopyNotWorth,  // found inside a block, and fewer tokens than min_partial_tokens
};

struct PrefixMatch {
  int32_t num_tokens = 0;      // that need not be computed
  int32_t partial_tokens = 0;  // of these: in a last block that others can see; Reserve copies it
  MissReason miss = MissReason::kNone;
  int32_t missed_block = 0;  // the first block that differs; means something if miss is not kNone
};

// What a sequence's tokens are known by: the hash before its first block, and the keys of its leading full blocks.
struct PrefixKeys {
  BlockHash root;
  std::vector<BlockHash> blocks;
};

// Hands out physical KV blocks to tables, shares equal prefixes between them, and never lets anyone write to a block
// that another table holds or that can be found. Ids only: it never sees memory, requests or sequences.
//
// Life of a table: NewTable, then MatchPrefix while it is empty (or Fork), Reserve before each step for all tokens the
// step will have stored, Publish after the step has run, Seal at the end if what is stored is worth finding again,
// Clear or destruction after the last step that reads it.
//
// Copy-on-write is one rule: when the block that a table writes next is held by other tables or can be found, Reserve
// exchanges it for a copy. Hits inside a block, forks and sealed tails all rest on it.
// In steady state nothing here allocates. Not thread-safe: the engine thread owns it.
class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  BlockTable NewTable() { return BlockTable(&pool_); }

  // Fills an empty `table` with the cached blocks that hold the longest prefix of `tokens`, at most `max_tokens` of
  // them: full blocks, then perhaps one that is right only up to the token where the texts part.
  PrefixMatch MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens,
                          BlockTable& table);

  // By how many blocks num_unused() falls when `table` comes to hold `total_tokens`, its own copy of a block that other
  // tables hold included.
  int32_t BlocksMissing(const BlockTable& table, int32_t total_tokens) const;

  // Makes `table` hold `total_tokens`, with those from num_stored() on in blocks that it may write. All or nothing:
  // kResourceExhausted if more blocks are missing than are unused, and then nothing has changed. Takes free blocks
  // first, then evicts cached ones.
  //
  // If the block that is written next is held by others or can be found, the table gets its own and the copy that fills
  // it is appended to *copies. Copies must run in the order in which they were given, before the step writes anything:
  // then each source is still whole, even if it has been handed to someone else in between.
  absl::Status Reserve(BlockTable& table, int32_t total_tokens, std::vector<BlockCopy>* copies = nullptr);

  // The first `num_computed` tokens are stored: to be called once the step that stored them has completed. Makes the
  // full blocks among them findable. `tokens` are the sequence's, at least num_computed; keys.blocks grows to the full
  // blocks' number. Where equal contents are findable already, in another block, that one stays.
  void Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed, PrefixKeys& keys);

  // Makes the part-filled last block findable too, with the tokens that were stored according to the latest Publish
  // (or match). The table may go on: Reserve will give it a copy. Nothing happens if the block is itself a copy that no
  // completed step has made yet.
  void Seal(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys);

  // A second table with the first `num_tokens` stored tokens of `parent`. All blocks are shared; whoever writes to a
  // part-filled one first, gets a copy in Reserve.
  BlockTable Fork(const BlockTable& parent, int32_t num_tokens);

  int32_t BlocksFor(int32_t num_tokens) const {
    return static_cast<int32_t>((int64_t{num_tokens} + block_size_ - 1) / block_size_);
  }
  // Blocks that Reserve can still hand out.
  int32_t num_unused() const { return pool_.num_unused(); }
  int32_t num_usable() const { return pool_.num_blocks() - 1; }
  int32_t block_size() const { return block_size_; }
  bool prefix_cache_enabled() const { return enable_prefix_cache_; }
  bool IsFindable(BlockId block) const { return pool_.is_cached(block); }
  int32_t count(BlockId block) const { return pool_.count(block); }
  BlockStats stats() const;

  // kInternal naming the first broken invariant: each block in exactly one state, counts equal to the live tables'
  // entries, findable blocks equal to the cache's entries. O(blocks + table entries).
  absl::Status CheckInvariants() const;

 private:
  static void OnEvict(void* self, BlockId block);
  // The index of the block that the table writes next, if others can see it; -1 otherwise.
  int32_t SharedTail(const BlockTable& table, int32_t total_tokens) const;
  void PublishFull(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys);
  void Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens, BlockId block);
  // The block can no longer be found.
  void Forget(BlockId block);

  const int32_t block_size_;
  const bool enable_prefix_cache_;
  const int32_t min_partial_tokens_;
  BlockHash (*const chain_hash_)(const BlockHash& parent, absl::Span<const int32_t> tokens);
  PrefixCache cache_;
  BlockPool pool_;
  int64_t num_evictions_ = 0;
};

}  // namespace quire
