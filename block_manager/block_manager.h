#pragma once

#include <cstdint>
#include <optional>
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

// What a sequence's tokens are known by: the hash before its first block, and the keys of its leading full blocks.
struct PrefixKeys {
  BlockHash root;
  std::vector<BlockHash> blocks;
};

// Hands out physical KV blocks to tables, shares equal prefixes between them, and never lets anyone write to a block
// that another table holds or that can be found. Ids only: it never sees memory, requests or sequences.
//
// Life of a table: NewTable, then MatchPrefix while it is empty, Reserve before each step for all tokens the step will
// have stored, Publish after the step has run, Clear or destruction at the end, after the last step that reads it.
// In steady state nothing here allocates. Not thread-safe: the engine thread owns it.
class BlockManager {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  BlockTable NewTable() { return BlockTable(&pool_); }

  // Fills an empty `table` with the cached blocks that hold the longest prefix of `tokens`: full blocks only, at most
  // `max_tokens` tokens. Returns the tokens they hold (0 with the cache off).
  int32_t MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens, BlockTable& table);

  // Blocks that `table` lacks to hold `total_tokens`; 0 if none.
  int32_t BlocksMissing(const BlockTable& table, int32_t total_tokens) const {
    const int32_t missing = BlocksFor(total_tokens) - table.size();
    return missing > 0 ? missing : 0;
  }

  // Makes `table` hold `total_tokens`. All or nothing: kResourceExhausted if it lacks more blocks than are unused, and
  // then nothing has changed. Takes free blocks first, then evicts cached ones, longest unused first.
  absl::Status Reserve(BlockTable& table, int32_t total_tokens);

  // Makes the full blocks among the first `num_computed` tokens findable; to be called once the step that stored them
  // has completed. `tokens` are the sequence's, at least num_computed; keys.blocks grows to the full blocks' number.
  // Where equal contents are findable already, in another block, that one stays.
  void Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed, PrefixKeys& keys);

  // A second table with the first `num_tokens` tokens of `parent`: its full blocks are shared, the rest is a block of
  // the new table's own, to be filled by `copy`. If no block is unused the rest is left out. Until that copy has run,
  // nothing may write to its `src`; copies of several forks run in the order of the forks.
  struct ForkResult {
    BlockTable table;
    int32_t num_tokens = 0;  // that the new table holds
    std::optional<BlockCopy> copy;
  };
  ForkResult Fork(const BlockTable& parent, int32_t num_tokens);

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

  const int32_t block_size_;
  const bool enable_prefix_cache_;
  BlockHash (*const chain_hash_)(const BlockHash& parent, absl::Span<const int32_t> tokens);
  PrefixCache cache_;
  BlockPool pool_;
  int64_t num_evictions_ = 0;
};

}  // namespace quire
