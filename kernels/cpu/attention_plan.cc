#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "kernels/cpu/vector_kernels.h"

namespace quire {

void CpuAttentionPlan::Build(const AttentionBatch& batch, int num_threads) {
  batch_ = batch;
  tiles_.clear();
  int64_t total_cost = 0;
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const int32_t end_row = batch.cu_q_lens[s + 1];
    const int32_t row_to_position = batch.context_lens[s] - end_row;
    for (int32_t row = batch.cu_q_lens[s]; row < end_row; row += kMaxTaskRows) {
      tiles_.push_back({.sequence = static_cast<int32_t>(s),
                        .first_row = row,
                        .num_rows = std::min(kMaxTaskRows, end_row - row),
                        .first_position = row + row_to_position});
      total_cost += tiles_.back().cost();
    }
  }
  // Pieces of at most a quarter of a thread's share; there can be only 4 * num_threads larger tiles.
  for (Tile& tile : tiles_) {
    tile.split_chunks = num_threads > 1 && tile.num_keys() > kKeyChunk && tile.cost() * 4 * num_threads > total_cost;
  }
  std::sort(tiles_.begin(), tiles_.end(), [](const Tile& a, const Tile& b) {
    return a.cost() != b.cost() ? a.cost() > b.cost() : a.first_row < b.first_row;
  });
}

}  // namespace quire
