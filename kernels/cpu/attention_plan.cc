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

// Whole chunks from the beginning that both see and for which both block tables name the same blocks.
int32_t CpuAttentionPlan::SharedChunks(int32_t block_size, const Tile& a, const Tile& b) const {
  const int32_t* const blocks = batch_.block_tables.data();
  const int32_t* const of_a = blocks + a.sequence * batch_.block_table_stride;
  const int32_t* const of_b = blocks + b.sequence * batch_.block_table_stride;
  const int32_t num_blocks = std::min(a.num_keys(), b.num_keys()) / block_size;
  return static_cast<int32_t>(std::mismatch(of_a, of_a + num_blocks, of_b).first - of_a) * block_size / kKeyChunk;
}

void CpuAttentionPlan::FindSharedPrefixes(AttentionSplit& split) const {
  const AttentionShape& shape = split.shape;
  split.shared.clear();
  split.shared_rows.clear();
  split.shared_partials.clear();
  split.shares.assign(tiles_.size(), {});
  const int32_t max_rows = std::min(kMaxTaskRows, kMaxTaskQueries / (shape.num_heads / shape.num_kv_heads));
  if (shape.window > 0 || shape.has_alibi || max_rows < 2) return;
  std::vector<int32_t>& order = split.candidates;
  order.clear();
  for (size_t t = 0; t < tiles_.size(); ++t) {
    if (tiles_[t].num_rows == 1 && tiles_[t].num_keys() >= kKeyChunk) order.push_back(static_cast<int32_t>(t));
  }
  // Equal beginnings side by side, longest ones too.
  const int32_t* const blocks = batch_.block_tables.data();
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int32_t* const of_a = blocks + tiles_[a].sequence * batch_.block_table_stride;
    const int32_t* const of_b = blocks + tiles_[b].sequence * batch_.block_table_stride;
    const int32_t num_blocks = std::min(tiles_[a].num_keys(), tiles_[b].num_keys()) / shape.block_size;
    const auto [in_a, in_b] = std::mismatch(of_a, of_a + num_blocks, of_b);
    if (in_a != of_a + num_blocks) return *in_a < *in_b;
    const int32_t keys_a = tiles_[a].num_keys(), keys_b = tiles_[b].num_keys();
    return keys_a != keys_b ? keys_a < keys_b : tiles_[a].sequence < tiles_[b].sequence;
  });
  const auto common = [&](size_t i) { return SharedChunks(shape.block_size, tiles_[order[i]], tiles_[order[i + 1]]); };
  for (size_t i = 0; i < order.size();) {
    SharedPrefix prefix{
        .sequence = tiles_[order[i]].sequence, .first = static_cast<int32_t>(split.shared_rows.size()), .num_rows = 1};
    size_t end = i + 1;
    for (; end < order.size() && prefix.num_rows < max_rows; ++end, ++prefix.num_rows) {
      const int32_t chunks = common(end - 1);
      // Who shares far less than the others do would take it from them, be it those before or the next ones.
      if (chunks == 0 || 2 * chunks < prefix.num_chunks) break;
      if (end + 1 < order.size() && common(end) > 2 * chunks) break;
      prefix.num_chunks = prefix.num_rows == 1 ? chunks : std::min(prefix.num_chunks, chunks);
    }
    if (prefix.num_rows > 1) {
      for (int32_t row = 0; row < prefix.num_rows; ++row, ++i) {
        split.shares[order[i]] = {static_cast<int32_t>(split.shared.size()), row};
        split.shared_rows.push_back(tiles_[order[i]].first_row);
      }
      split.shared.push_back(prefix);
    }
    i = end;
  }
}

// One item a chunk and KV head.
void CpuAttentionPlan::AddSharedItems(AttentionSplit& split) const {
  const int32_t group = split.shape.num_heads / split.shape.num_kv_heads;
  for (size_t s = 0; s < split.shared.size(); ++s) {
    const SharedPrefix& prefix = split.shared[s];
    split.shared_partials.push_back(split.partial_floats);
    const int64_t chunk_floats = int64_t{prefix.num_rows} * group * PartialFloats(split.shape.head_dim);
    for (int32_t head = 0; head < split.shape.num_heads; head += group) {
      for (int32_t chunk = 0; chunk < prefix.num_chunks; ++chunk) {
        split.items.push_back({.first_head = head,
                               .num_heads = group,
                               .chunk_begin = chunk,
                               .chunk_end = chunk + 1,
                               .partials = split.partial_floats,
                               .shared = static_cast<int32_t>(s)});
      }
      split.partial_floats += prefix.num_chunks * chunk_floats;
    }
  }
}

void CpuAttentionPlan::Fill(AttentionSplit& split) const {
  split.items.clear();
  split.merges.clear();
  split.partial_floats = 0;
  FindSharedPrefixes(split);
  AddSharedItems(split);
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
                       .chunk_end = CeilDiv(tile.num_keys(), kKeyChunk),
                       .shared = split.shares[t].prefix};
    if (item.shared >= 0) item.chunk_begin = split.shared[item.shared].num_chunks;
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
  if (item.shared < 0 && (!tile.split_chunks || item.chunk_end - item.chunk_begin == 1)) {
    split.items.push_back(item);
    return;
  }
  const int64_t partial_size = PartialFloats(split.shape.head_dim);
  item.partials = split.partial_floats;
  split.partial_floats += int64_t{item.chunk_end} * tile.num_rows * item.num_heads * partial_size;
  if (item.shared >= 0) {
    const SharedPrefix& prefix = split.shared[item.shared];
    const int64_t kv_head = item.first_head / item.num_heads;
    item.shared_partials =
        split.shared_partials[item.shared] +
        (kv_head * prefix.num_chunks * prefix.num_rows + split.shares[item.tile].row) * item.num_heads * partial_size;
  }
  split.merges.push_back(item);
  for (int32_t chunk = item.chunk_begin, end = item.chunk_end; chunk < end; ++chunk) {
    item.chunk_begin = chunk, item.chunk_end = chunk + 1;
    split.items.push_back(item);
  }
}

}  // namespace quire
