#include "kernels/cpu/attention_plan.h"

#include <algorithm>

#include "kernels/cpu/vector_kernels.h"

namespace quire {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

void CpuAttentionPlan::Build(const AttentionBatch& batch, int num_threads) {
  num_threads_ = num_threads;
  batch_ = batch;
  num_splits_ = 0;
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

const AttentionSplit& CpuAttentionPlan::SplitFor(const AttentionShape& shape) const {
  for (size_t i = 0; i < num_splits_; ++i) {
    if (splits_[i]->shape == shape) return *splits_[i];
  }
  if (num_splits_ == splits_.size()) splits_.push_back(std::make_unique<AttentionSplit>());
  AttentionSplit& split = *splits_[num_splits_++];
  split.shape = shape;
  Fill(split);
  return split;
}

void CpuAttentionPlan::Fill(AttentionSplit& split) const {
  split.items.clear();
  split.merges.clear();
  split.partial_floats = 0;
  const AttentionShape& shape = split.shape;
  const int32_t group = shape.num_heads / shape.num_kv_heads;
  // A lone tile's heads are cut at equal shares too, so that no thread has a KV head more than another.
  const bool lone = tiles_.size() == 1;
  const auto thread_of = [&](int32_t head) { return int64_t{head} * num_threads_ / shape.num_heads; };
  for (size_t t = 0; t < tiles_.size(); ++t) {
    const Tile& tile = tiles_[t];
    const int32_t first_key = shape.window > 0 ? std::max(0, tile.first_position - shape.window + 1) : 0;
    AttentionItem item{.tile = static_cast<int32_t>(t),
                       .chunk_begin = first_key / kKeyChunk,
                       .chunk_end = CeilDiv(tile.num_keys(), kKeyChunk)};
    // Heads of a group that do not fit one task are dealt out evenly.
    const int32_t slice = CeilDiv(group, CeilDiv(group, kMaxTaskQueries / tile.num_rows));
    for (int32_t head = 0; head < shape.num_heads; head += item.num_heads) {
      item.first_head = head;
      item.num_heads = std::min(slice, group - head % group);
      while (lone && !tile.split_chunks && thread_of(head) != thread_of(head + item.num_heads - 1)) --item.num_heads;
      AddItem(item, split);
    }
  }
  if (!lone) return;
  std::sort(split.items.begin(), split.items.end(), [](const AttentionItem& a, const AttentionItem& b) {
    return a.num_heads != b.num_heads ? a.num_heads > b.num_heads : a.first_head < b.first_head;
  });
}

void CpuAttentionPlan::AddItem(AttentionItem item, AttentionSplit& split) const {
  const Tile& tile = tiles_[item.tile];
  if (!tile.split_chunks || item.chunk_end - item.chunk_begin == 1) {
    split.items.push_back(item);
    return;
  }
  item.partials = split.partial_floats;
  split.partial_floats +=
      int64_t{item.chunk_end} * tile.num_rows * item.num_heads * PartialFloats(split.shape.head_dim);
  split.merges.push_back(item);
  for (int32_t chunk = item.chunk_begin, end = item.chunk_end; chunk < end; ++chunk) {
    item.chunk_begin = chunk, item.chunk_end = chunk + 1;
    split.items.push_back(item);
  }
}

}  // namespace quire
