#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace quire {

// The CPU's work split of one step: tiles of rows of one sequence, most work first, so that threads which take them in
// order finish together. A tile that is too large a part of the whole is split further, by chunks of keys. The split
// changes who computes, never what: chunks are merged in the same order either way.
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

 private:
  AttentionBatch batch_;
  std::vector<Tile> tiles_;
};

}  // namespace quire
