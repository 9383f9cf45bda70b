#pragma once

#include <cstdint>

#include "kernels/cpu/attention_kv.h"
#include "kernels/cpu/vec16_math.h"
#include "kernels/cpu/vector_kernels.h"

// Attention of one task over a Vec16 type V; kernels/README.md, "Attention", defines the arithmetic. Included by the
// instruction-set units only: every function is a template over V or always inlined, so that no code of one unit can
// stand in for another's. Each chunk of keys is gone through twice: scores first, then, with the chunk's maximum known,
// sums of values. Keys go in tiles of 16, converted to f32 once for all queries, and so do values, unless the task is
// one row, whose few queries take them as they lie.
namespace quire::attention {

// The keys that row `row` sees.
template <typename V>
KeyRange VisibleKeys(const AttentionTask& task, int32_t row) {
  const int32_t position = task.first_position + (task.rows == nullptr ? row : 0);
  const int32_t begin = task.window > 0 && position >= task.window ? position - task.window + 1 : 0;
  return {begin, position + 1};
}

// The same cut to a chunk.
template <typename V>
KeyRange ChunkKeys(const AttentionTask& task, int32_t row, int32_t chunk) {
  return VisibleKeys<V>(task, row).Within(chunk * kKeyChunk, (chunk + 1) * kKeyChunk);
}

// Lane j: dot product of the query with key j of the tile.
template <typename V>
V DotTile(const float* query, const float* tile, int64_t padded) {
  V sums[kTileKeys];
#pragma GCC unroll 16
  for (int first = 0; first < kTileKeys; first += V::kDotKeys) {
    const float* keys = tile + first * 16;
    V acc[V::kDotKeys];
#pragma GCC unroll 16
    for (int j = 0; j < V::kDotKeys; ++j) acc[j] = V::Zero();
    for (int64_t i = 0; i < padded; i += 16, keys += kTileKeys * 16) {
      const V q = V::Load(query + i);
#pragma GCC unroll 16
      for (int j = 0; j < V::kDotKeys; ++j) acc[j] = V::Fma(q, V::Load(keys + j * 16), acc[j]);
    }
#pragma GCC unroll 16
    for (int j = 0; j < V::kDotKeys; ++j) sums[first + j] = acc[j];
  }
  return V::Sums(sums);
}

// Scores from dot products with the keys at positions first, first + 1, ... of the chunk that begins at `base`.
template <typename V>
V AdjustScores(const AttentionTask& task, int32_t head, int32_t query_position, int32_t first, int32_t base,
               const Scratch& scratch, V dots) {
  if (HasScales<V>(task)) dots = dots * V::Load(scratch.key_scales + (first - base));
  V scores = dots * V::All(task.scale);
  if (task.softcap > 0) scores = V::All(task.softcap) * Tanh<V>(scores / V::All(task.softcap));
  if (task.slopes != nullptr) {
    const V distance = V::Iota() + V::All(static_cast<float>(first - query_position));
    scores = V::Fma(V::All(task.slopes[head]), distance, scores);
  }
  return scores;
}

// The same of kHeads queries with the keys at `rows`, straight from the cache: sums[h][j] is still to be added up.
template <typename V, int kHeads, DType kType>
void DotRows(const std::byte* const* rows, int64_t dim, const float* queries, int64_t padded,
             V (&sums)[kHeads][kTileKeys]) {
  constexpr int kKeys = V::kSumVectors;
  for (int first = 0; first < kTileKeys; first += kKeys) {
    V acc[kHeads][kKeys];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) acc[h][j] = V::Zero();
    }
    for (int64_t i = 0; i < padded; i += 16) {
      V keys[kKeys];
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) keys[j] = LoadStored<V, kType>(rows[first + j], i, dim - i);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        const V query = V::Load(queries + h * padded + i);
#pragma GCC unroll 8
        for (int j = 0; j < kKeys; ++j) acc[h][j] = V::Fma(query, keys[j], acc[h][j]);
      }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int j = 0; j < kKeys; ++j) sums[h][first + j] = acc[h][j];
    }
  }
}

// Scores of the 16 keys at `rows`, the first one at position `first`, for the heads from `head` on of a task of one
// row.
template <typename V, int kHeads, DType kType>
void ScoreRowForHeads(const AttentionTask& task, const std::byte* const* rows, int32_t first, int32_t base,
                      int32_t head, const Scratch& scratch) {
  for (; head + kHeads <= task.num_heads; head += kHeads) {
    V sums[kHeads][kTileKeys];
    DotRows<V, kHeads, kType>(rows, task.head_dim, scratch.queries + head * scratch.padded, scratch.padded, sums);
    for (int h = 0; h < kHeads; ++h) {
      AdjustScores<V>(task, head + h, task.first_position, first, base, scratch, V::Sums(sums[h]))
          .Store(scratch.scores + (head + h) * kKeyChunk + (first - base));
    }
  }
  if constexpr (kHeads > 1) ScoreRowForHeads<V, kHeads - 1, kType>(task, rows, first, base, head, scratch);
}

// ScoreChunk of a task of one row, which asks for its keys well ahead and for its values, too.
template <typename V, DType kType>
void ScoreRow(const AttentionTask& task, int32_t chunk, KeyRange keys, const Scratch& scratch) {
  const int32_t begin = keys.begin / kTileKeys * kTileKeys;
  FetchAhead<V>(task, keys.Within(begin, begin + kRowTilesAhead * kTileKeys), /*values=*/false);
  for (int32_t first = begin; first < keys.end; first += kTileKeys) {
    const KeyRange wanted = keys.Within(first, first + kTileKeys);
    const int32_t ahead = first + kRowTilesAhead * kTileKeys;
    FetchAhead<V>(task, keys.Within(ahead, ahead + kTileKeys), /*values=*/false);
    FetchAhead<V>(task, wanted, /*values=*/true);
    const std::byte* rows[kTileKeys];
    ForRows<V>(task, wanted, /*values=*/false, [&](int32_t position, int32_t end, const std::byte* row) {
      for (; position < end; ++position, row += task.row_stride) rows[position - first] = row;
    });
    // Scores of keys that are not there will not be looked at: any row will do for them.
    for (int32_t j = 0; j < wanted.begin - first; ++j) rows[j] = rows[wanted.begin - first];
    for (int32_t j = wanted.end - first; j < kTileKeys; ++j) rows[j] = rows[wanted.begin - first];
    ScoreRowForHeads<V, V::kSumRows, kType>(task, rows, first, chunk * kKeyChunk, 0, scratch);
  }
}

template <typename V>
void ScoreChunk(const AttentionTask& task, int32_t chunk, KeyRange keys, const Scratch& scratch) {
  if (task.num_rows == 1) {
    return WithKvType<V>(task.kv_dtype, [&]<DType kType>() { ScoreRow<V, kType>(task, chunk, keys, scratch); });
  }
  const int32_t base = chunk * kKeyChunk;
  for (int32_t first = keys.begin / kTileKeys * kTileKeys; first < keys.end; first += kTileKeys) {
    LoadTile<V>(task, first, keys, /*values=*/false, scratch);
    for (int32_t row = 0; row < task.num_rows; ++row) {
      if (ChunkKeys<V>(task, row, chunk).Within(first, first + kTileKeys).empty()) continue;
      for (int32_t head = 0; head < task.num_heads; ++head) {
        const int64_t query = row * task.num_heads + head;
        const V dots = DotTile<V>(scratch.queries + query * scratch.padded, scratch.tile, scratch.padded);
        AdjustScores<V>(task, head, task.first_position + row, first, base, scratch, dots)
            .Store(scratch.scores + query * kKeyChunk + (first - base));
      }
    }
  }
}

// Turns the scores of `keys` (relative to the chunk) into weights exp(score - maximum), 0 outside of it in the vectors
// that it touches. Writes maximum and sum. Then multiplies the weights by the keys' `value_scales`, unless that is
// null.
template <typename V>
void WeighScores(KeyRange keys, const float* value_scales, float* scores, float* max_and_sum) {
  const int32_t begin = keys.begin / 16 * 16;
  const V low = V::All(static_cast<float>(keys.begin)), high = V::All(static_cast<float>(keys.end));
  const V nothing = V::All(-__builtin_inff());
  V highest = nothing;
  for (int32_t j = begin; j < keys.end; j += 16) {
    const V index = V::Iota() + V::All(static_cast<float>(j));
    V x = V::Load(scores + j);
    x = V::SelectLess(index, low, nothing, V::SelectLess(index, high, x, nothing));
    x.Store(scores + j);
    highest = V::Max(x, highest);
  }
  const V max = V::All(highest.Highest());
  V sum = V::Zero();
  for (int32_t j = begin; j < keys.end; j += 16) {
    const V weight = Exp<V>(V::Load(scores + j) - max);
    sum = sum + weight;
    (value_scales == nullptr ? weight : weight * V::Load(value_scales + j)).Store(scores + j);
  }
  max_and_sum[0] = max.First();
  max_and_sum[1] = sum.Sum();
}

// acc[r] += sum over rows j in [begin, end), ascending, of weights[r][j] * rows[j - begin], for kRows queries and
// kVectors * 16 dimensions from `at` on, of which `count` are there. Rows are `stride` bytes apart.
template <typename V, int kRows, int kVectors, DType kType>
void AddRows(const float* const* weights, int32_t begin, int32_t end, const std::byte* rows, int64_t stride,
             int64_t count, float* const* acc, int64_t at) {
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Load(acc[r] + at + 16 * v);
  }
  for (int32_t j = begin; j < end; ++j, rows += stride) {
    V values[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) values[v] = LoadStored<V, kType>(rows, at + 16 * v, count - 16 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V weight = V::All(weights[r][j]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] = V::Fma(weight, values[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r][v].Store(acc[r] + at + 16 * v);
  }
}

// The same for all `dim` dimensions; `keys` counts as the weights do.
template <typename V, int kRows, DType kType>
void AddRows(const float* const* weights, KeyRange keys, const std::byte* rows, int64_t stride, int64_t dim,
             float* const* acc) {
  if (keys.empty()) return;
  constexpr int64_t kWide = 16 * V::kSumVectors;
  int64_t i = 0;
  for (; i + kWide <= dim; i += kWide) {
    AddRows<V, kRows, V::kSumVectors, kType>(weights, keys.begin, keys.end, rows, stride, kWide, acc, i);
  }
  for (; i < dim; i += 16) AddRows<V, kRows, 1, kType>(weights, keys.begin, keys.end, rows, stride, dim - i, acc, i);
}

// Keys [keys.begin, keys.end) of the tile.
template <typename V, int kRows>
void AddValues(const float* const* weights, KeyRange keys, const Scratch& scratch, float* const* acc) {
  const int64_t stride = scratch.padded * static_cast<int64_t>(sizeof(float));
  const std::byte* const rows = reinterpret_cast<const std::byte*>(scratch.tile) + keys.begin * stride;
  AddRows<V, kRows, DType::kF32>(weights, keys, rows, stride, scratch.padded, acc);
}

// The values of one tile for kRows queries from `query` on. Keys that all of them see are taken together; those that
// only some see come before and after, so that each query adds its own keys, all of them, in ascending order.
template <typename V, int kRows>
void SumTileForQueries(const AttentionTask& task, int32_t chunk, int32_t first, int64_t query, const Scratch& scratch,
                       bool all_see_all) {
  const float* weights[kRows];
  float* acc[kRows];
  for (int r = 0; r < kRows; ++r) {
    weights[r] = scratch.scores + (query + r) * kKeyChunk + (first - chunk * kKeyChunk);
    acc[r] = scratch.chunk + (query + r) * scratch.partial_size;
  }
  if (all_see_all) return AddValues<V, kRows>(weights, {0, kTileKeys}, scratch, acc);
  KeyRange own[kRows];
  KeyRange common = {0, kTileKeys};
  for (int r = 0; r < kRows; ++r) {
    const int32_t row = static_cast<int32_t>((query + r) / task.num_heads);
    const KeyRange keys = ChunkKeys<V>(task, row, chunk).Within(first, first + kTileKeys);
    own[r] = {keys.begin - first, keys.end - first};
    common = common.Within(own[r].begin, own[r].end);
  }
  if (common.empty()) common.end = common.begin = kTileKeys;  // everything is "before"
  for (int r = 0; r < kRows; ++r) AddValues<V, 1>(weights + r, own[r].Within(0, common.begin), scratch, acc + r);
  AddValues<V, kRows>(weights, common, scratch, acc);
  for (int r = 0; r < kRows; ++r) AddValues<V, 1>(weights + r, own[r].Within(common.end, kTileKeys), scratch, acc + r);
}

// The values of one tile for the queries from `query` on: kRows at a time, then the rest in smaller groups.
template <typename V, int kRows>
void SumTile(const AttentionTask& task, int32_t chunk, int32_t first, int64_t query, const Scratch& scratch,
             bool all_see_all) {
  const int64_t num_queries = int64_t{task.num_rows} * task.num_heads;
  for (; query + kRows <= num_queries; query += kRows) {
    SumTileForQueries<V, kRows>(task, chunk, first, query, scratch, all_see_all);
  }
  if constexpr (kRows > 1) SumTile<V, kRows - 1>(task, chunk, first, query, scratch, all_see_all);
}

// The values of `keys` for the heads from `head` on of a task of one row, straight from the cache.
template <typename V, int kHeads, DType kType>
void SumRowForHeads(const AttentionTask& task, int32_t chunk, KeyRange keys, int32_t head, const Scratch& scratch) {
  for (; head + kHeads <= task.num_heads; head += kHeads) {
    const float* weights[kHeads];
    float* acc[kHeads];
    for (int h = 0; h < kHeads; ++h) {
      weights[h] = scratch.scores + (head + h) * kKeyChunk;
      acc[h] = scratch.chunk + (head + h) * scratch.partial_size;
    }
    const int32_t base = chunk * kKeyChunk;
    ForRows<V>(task, keys, /*values=*/true, [&](int32_t position, int32_t end, const std::byte* rows) {
      FetchAhead<V>(task, keys.Within(end, 2 * end - position), /*values=*/true);
      AddRows<V, kHeads, kType>(weights, {position - base, end - base}, rows, task.row_stride, task.head_dim, acc);
    });
  }
  if constexpr (kHeads > 1) SumRowForHeads<V, kHeads - 1, kType>(task, chunk, keys, head, scratch);
}

template <typename V>
void SumChunk(const AttentionTask& task, int32_t chunk, KeyRange keys, const Scratch& scratch) {
  if (task.num_rows == 1) {
    return WithKvType<V>(task.kv_dtype,
                         [&]<DType kType>() { SumRowForHeads<V, V::kSumRows, kType>(task, chunk, keys, 0, scratch); });
  }
  // Later rows begin and end to see keys later.
  const int32_t all_begin = ChunkKeys<V>(task, task.num_rows - 1, chunk).begin;
  const int32_t all_end = ChunkKeys<V>(task, 0, chunk).end;
  for (int32_t first = keys.begin / kTileKeys * kTileKeys; first < keys.end; first += kTileKeys) {
    LoadTile<V>(task, first, keys, /*values=*/true, scratch);
    const bool all_see_all = first >= all_begin && first + kTileKeys <= all_end;
    SumTile<V, V::kSumRows>(task, chunk, first, 0, scratch, all_see_all);
  }
}

// The results of one chunk for all queries into scratch.chunk; a query that sees none of its keys gets sum 0.
template <typename V>
void AttendChunk(const AttentionTask& task, int32_t chunk, const Scratch& scratch) {
  const int32_t base = chunk * kKeyChunk;
  const KeyRange keys = {ChunkKeys<V>(task, 0, chunk).begin, ChunkKeys<V>(task, task.num_rows - 1, chunk).end};
  const int64_t num_queries = int64_t{task.num_rows} * task.num_heads;
  for (int64_t i = 0; i < num_queries * scratch.partial_size; i += 16) V::Zero().Store(scratch.chunk + i);
  if (keys.empty()) return;
  if (HasScales<V>(task)) LoadScales<V>(task, keys, base, scratch);
  ScoreChunk<V>(task, chunk, keys, scratch);
  for (int64_t query = 0; query < num_queries; ++query) {
    const KeyRange own = ChunkKeys<V>(task, static_cast<int32_t>(query / task.num_heads), chunk);
    if (own.empty()) continue;
    WeighScores<V>({own.begin - base, own.end - base}, HasScales<V>(task) ? scratch.value_scales : nullptr,
                   scratch.scores + query * kKeyChunk, scratch.chunk + query * scratch.partial_size + scratch.padded);
  }
  SumChunk<V>(task, chunk, keys, scratch);
}

// total = total merged with the later `chunk`: both rescaled to the higher maximum. Sum 0 is an empty one.
template <typename V>
void Merge(const float* chunk, int64_t padded, float* total) {
  const float* stats = chunk + padded;
  float* total_stats = total + padded;
  if (stats[1] == 0) return;
  if (total_stats[1] == 0) {
    for (int64_t i = 0; i < padded + 16; i += 16) V::Load(chunk + i).Store(total + i);
    return;
  }
  const V max = V::Max(V::All(total_stats[0]), V::All(stats[0]));
  const V keep = Exp<V>(V::All(total_stats[0]) - max), add = Exp<V>(V::All(stats[0]) - max);
  for (int64_t i = 0; i < padded; i += 16) {
    V::Fma(V::Load(total + i), keep, V::Load(chunk + i) * add).Store(total + i);
  }
  total_stats[0] = max.First();
  total_stats[1] = V::Fma(V::All(total_stats[1]), keep, V::All(stats[1]) * add).First();
}

// Adds the sink to the sum, divides, and writes output and logsumexp of one query.
template <typename V>
void Finish(const AttentionTask& task, int64_t query, int64_t padded, const float* total) {
  const int64_t row = query / task.num_heads, head = query % task.num_heads;
  V max = V::All(total[padded]), sum = V::All(total[padded + 1]), scale = V::All(1);
  if (task.sinks != nullptr) {
    const V sink = V::All(task.sinks[head]);
    const V higher = V::Max(max, sink);
    scale = Exp<V>(max - higher);
    sum = V::Fma(sum, scale, Exp<V>(sink - higher));
    max = higher;
  }
  const V factor = scale / sum;
  float* out = task.out + row * task.out_stride + head * task.head_dim;
  int64_t i = 0;
  for (; i + 16 <= task.head_dim; i += 16) (V::Load(total + i) * factor).Store(out + i);
  if (i < task.head_dim) (V::Load(total + i) * factor).StoreN(out + i, static_cast<int>(task.head_dim - i));
  if (task.logsumexp != nullptr) {
    const double log_sum = __builtin_log(static_cast<double>(sum.First()));
    task.logsumexp[row * task.logsumexp_stride + head] = static_cast<float>(static_cast<double>(max.First()) + log_sum);
  }
}

template <typename V>
void Attend(const AttentionTask& task) {
  const Scratch scratch(task);
  const int64_t num_queries = int64_t{task.num_rows} * task.num_heads;
  for (int64_t query = 0; query < num_queries; ++query) {
    const int64_t row = query / task.num_heads, head = query % task.num_heads;
    const int64_t batch_row = task.rows == nullptr ? row : task.rows[row];
    const float* const from = task.q + batch_row * task.q_stride + head * task.head_dim;
    float* const to = scratch.queries + query * scratch.padded;
    for (int64_t i = 0; i < scratch.padded; i += 16) LoadUpTo<V>(from + i, task.head_dim - i).Store(to + i);
    V::Zero().Store(scratch.total + query * scratch.partial_size + scratch.padded);
  }
  for (int32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    AttendChunk<V>(task, chunk, scratch);
    if (task.partials != nullptr) {
      float* partials = task.partials + chunk * num_queries * scratch.partial_size;
      for (int64_t i = 0; i < num_queries * scratch.partial_size; i += 16) {
        V::Load(scratch.chunk + i).Store(partials + i);
      }
      continue;
    }
    for (int64_t query = 0; query < num_queries; ++query) {
      Merge<V>(scratch.chunk + query * scratch.partial_size, scratch.padded,
               scratch.total + query * scratch.partial_size);
    }
  }
  if (task.partials != nullptr) return;
  for (int64_t query = 0; query < num_queries; ++query) {
    Finish<V>(task, query, scratch.padded, scratch.total + query * scratch.partial_size);
  }
}

template <typename V>
void MergePartials(const AttentionTask& task) {
  const Scratch scratch(task);
  const int64_t num_queries = int64_t{task.num_rows} * task.num_heads;
  for (int64_t query = 0; query < num_queries; ++query) {
    V::Zero().Store(scratch.total + scratch.padded);
    for (int32_t chunk = 0; chunk < task.shared_chunks; ++chunk) {
      const float* const results = task.shared_partials + chunk * task.shared_stride;
      Merge<V>(results + query * scratch.partial_size, scratch.padded, scratch.total);
    }
    for (int32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
      Merge<V>(task.partials + (chunk * num_queries + query) * scratch.partial_size, scratch.padded, scratch.total);
    }
    Finish<V>(task, query, scratch.padded, scratch.total);
  }
}

}  // namespace quire::attention
