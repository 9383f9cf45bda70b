#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace quire {

// What one thread takes at once: heads of one KV head for the rows of a tile or of a shared prefix, over some chunks of
// keys.
struct AttentionItem {
  int32_t tile = -1;  // -1: the rows of a shared prefix
  int32_t first_head = 0;
  int32_t num_heads = 0;
  int32_t chunk_begin = 0;
  int32_t chunk_end = 0;
  int64_t partials = -1;         // offset in floats; -1: none, the item is complete in itself
  int32_t shared = -1;           // index of the prefix; in a merge, that whose chunks come first
  int64_t shared_partials = -1;  // of a merge: where the prefix's first chunk has the results of this row
};

// Blocks that several sequences of one row each begin with, so that keys and values are read once for all of them.
struct SharedPrefix {
  int32_t sequence = 0;    // one whose block table names them
  int32_t first = 0;       // of its rows in AttentionSplit::shared_rows
  int32_t num_rows = 0;    // at least 2
  int32_t num_chunks = 0;  // whole chunks of keys, from the beginning, which all the rows see
};

// What the split of a layer depends on beside the batch.
struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;
  int32_t block_size = 0;
  bool has_alibi = false;  // scores depend on where the query is

  bool operator==(const AttentionShape&) const = default;
};

// The items of all layers of one shape, most work first.
struct AttentionSplit {
  // The prefix that a tile's sequence begins with, and which of its rows the tile is.
  struct Share {
    int32_t prefix = -1;
    int32_t row = 0;
  };

  AttentionShape shape;
  std::vector<AttentionItem> items;
  std::vector<AttentionItem> merges;  // of items with partials
  int64_t partial_floats = 0;
  std::vector<SharedPrefix> shared;
  std::vector<int32_t> shared_rows;      // rows of the flat batch
  std::vector<int64_t> shared_partials;  // offset of each prefix's results, [KV head][chunk][row][head of the group]
  std::vector<Share> shares;             // of each tile
  std::vector<int32_t> candidates;       // working memory
};

// The CPU's work split of one step: tiles of rows of one sequence, most work first. A tile that is too large a part of
// the whole is split further, by chunks of keys. Sequences of one row that begin with the same blocks leave their whole
// chunks there to items that take the rows of all of them. The split changes who computes, never what: chunks are
// merged in the same order either way.
class CpuAttentionPlan : public AttentionPlan {
 public:
  struct Tile {
    int32_t sequence = 0;
    int32_t first_row = 0;  // of the flat batch
    int32_t num_rows = 0;
    int32_t first_position = 0;  // of the first row
    bool split_chunks = false;

    int32_t num_keys() const { return first_position + num_rows; }
    int64_t cost() const { return int64_t{num_rows} * num_keys(); }
  };

  // REQUIRES: the batch has been checked.
  void Build(const AttentionBatch& batch, int num_threads);

  const AttentionBatch& batch() const { return batch_; }
  const std::vector<Tile>& tiles() const { return tiles_; }

  // Made when first asked for; valid until the next Build.
  const AttentionSplit& SplitFor(const AttentionShape& shape) const;

 private:
  void Fill(AttentionSplit& split) const;
  void FindSharedPrefixes(AttentionSplit& split) const;
  int32_t SharedChunks(int32_t block_size, const Tile& a, const Tile& b) const;
  void AddSharedItems(AttentionSplit& split) const;
  void AddItem(AttentionItem item, AttentionSplit& split) const;

  int num_threads_ = 1;
  AttentionBatch batch_;
  std::vector<Tile> tiles_;
  // The first num_splits_ are of this batch.
  mutable std::vector<std::unique_ptr<AttentionSplit>> splits_;
  mutable size_t num_splits_ = 0;
};

}  // namespace quire
