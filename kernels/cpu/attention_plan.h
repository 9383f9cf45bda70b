#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace quire {

// What one thread takes at once: heads of one KV head for the rows of a tile, over some chunks of keys.
struct AttentionItem {
  int32_t tile = 0;
  int32_t first_head = 0;
  int32_t num_heads = 0;
  int32_t chunk_begin = 0;
  int32_t chunk_end = 0;
  int64_t partials = -1;  // offset in floats; -1: none, the item is complete in itself
};

// What the split of a layer depends on beside the batch.
struct AttentionShape {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0;

  bool operator==(const AttentionShape&) const = default;
};

// The items of all layers of one shape, most work first.
struct AttentionSplit {
  AttentionShape shape;
  std::vector<AttentionItem> items;
  std::vector<AttentionItem> merges;  // of items with partials
  int64_t partial_floats = 0;
};

// The CPU's work split of one step: tiles of rows of one sequence, most work first. A tile that is too large a part of
// the whole is split further, by chunks of keys. The split changes who computes, never what: chunks are merged in the
// same order either way.
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
  void AddItem(AttentionItem item, AttentionSplit& split) const;

  int num_threads_ = 1;
  AttentionBatch batch_;
  std::vector<Tile> tiles_;
  // The first num_splits_ are of this batch.
  mutable std::vector<std::unique_ptr<AttentionSplit>> splits_;
  mutable size_t num_splits_ = 0;
};

}  // namespace quire
