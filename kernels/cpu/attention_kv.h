#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/cpu/vector_kernels.h"

// What a task of attention reads of the KV cache, as f32: rows where they lie, tiles of 16 rows, scales of a chunk. For
// attention_impl.h, whose rules hold here.
namespace quire::attention {

inline constexpr int kTileKeys = 16;

// The task's scratch, cut up.
struct Scratch {
  [[gnu::always_inline]] explicit Scratch(const AttentionTask& task) {
    padded = PaddedHeadDim(task.head_dim);
    partial_size = PartialFloats(task.head_dim);
    queries = task.scratch;
    scores = queries + kMaxTaskQueries * padded;
    tile = scores + kMaxTaskQueries * int64_t{kKeyChunk};
    chunk = tile + kTileKeys * padded;
    total = chunk + kMaxTaskQueries * partial_size;
    key_scales = total + kMaxTaskQueries * partial_size;
    value_scales = key_scales + kKeyChunk;
  }
  int64_t padded;
  int64_t partial_size;
  float* queries;       // [query][padded], zeros behind head_dim
  float* scores;        // [query][kKeyChunk], then weights
  float* tile;          // keys: [padded / 16][key][16]; values: [key][padded]
  float* chunk;         // [query][partial_size]
  float* total;         // [query][partial_size]
  float* key_scales;    // [kKeyChunk], where HasScales
  float* value_scales;  // [kKeyChunk], too
};

// True if stored values are to be multiplied by a scale of their row: that goes into scores and weights.
template <typename V>
bool HasScales(const AttentionTask& task) {
  return task.kv_dtype == DType::kI8;
}

// A half-open range of key positions.
struct KeyRange {
  int32_t begin;
  int32_t end;
  [[gnu::always_inline]] bool empty() const { return begin >= end; }
  [[gnu::always_inline]] KeyRange Within(int32_t low, int32_t high) const {
    return {begin > low ? begin : low, end < high ? end : high};
  }
};

// Calls body.operator()<type>() for a type of KvStorage as a constant.
template <typename V, typename F>
void WithKvType(DType type, F body) {
  switch (type) {
    case DType::kF16:
      return body.template operator()<DType::kF16>();
    case DType::kBf16:
      return body.template operator()<DType::kBf16>();
    case DType::kI8:
      return body.template operator()<DType::kI8>();
    default:
      return body.template operator()<DType::kF32>();
  }
}

template <typename V>
V LoadUpTo(const float* from, int64_t n) {
  return n >= 16 ? V::Load(from) : V::LoadN(from, static_cast<int>(n));
}

// Values i .. i + 15 of a stored row, of which `n` are there, zeros behind.
template <typename V, DType kType>
V LoadStored(const std::byte* row, int64_t i, int64_t n) {
  const int few = static_cast<int>(n);
  if constexpr (kType == DType::kI8) {
    const int8_t* const from = reinterpret_cast<const int8_t*>(row) + i;
    return n >= 16 ? V::LoadI8(from) : V::LoadI8N(from, few);
  } else if constexpr (kType == DType::kF16) {
    const uint16_t* const from = reinterpret_cast<const uint16_t*>(row) + i;
    return n >= 16 ? V::LoadF16(from) : V::LoadF16N(from, few);
  } else if constexpr (kType == DType::kBf16) {
    const uint16_t* const from = reinterpret_cast<const uint16_t*>(row) + i;
    return n >= 16 ? V::LoadBf16(from) : V::LoadBf16N(from, few);
  } else {
    return LoadUpTo<V>(reinterpret_cast<const float*>(row) + i, n);
  }
}

// Calls body(position, end, run, slot) for pieces of `keys` that lie one behind the other in a block's run, from `slot`
// on.
template <typename V, typename F>
void ForBlocks(const AttentionTask& task, KeyRange keys, F body) {
  int32_t position = keys.begin;
  while (position < keys.end) {
    const int32_t block = position / task.block_size, slot = position - block * task.block_size;
    const int32_t block_end = (block + 1) * task.block_size;
    const int32_t end = block_end < keys.end ? block_end : keys.end;
    body(position, end, task.kv + task.block_table[block] * task.block_stride, slot);
    position = end;
  }
}

// Calls body(position, end, row) for pieces of `keys` whose K (or, with `values`, V) rows lie one behind the other.
template <typename V, typename F>
void ForRows(const AttentionTask& task, KeyRange keys, bool values, F body) {
  const int64_t first = values ? task.values_at : 0;
  ForBlocks<V>(task, keys, [&](int32_t position, int32_t end, const std::byte* run, int32_t slot) {
    body(position, end, run + first + slot * task.row_stride);
  });
}

// Blocks are a few KiB, too short for the hardware to run ahead: ask for the rows of `keys` before they are needed. One
// row of queries takes less time for a tile than memory for the next: it looks further ahead, and brings the values
// into the second-level cache while it goes through the keys.
inline constexpr int kRowTilesAhead = 4;

template <typename V>
void FetchAhead(const AttentionTask& task, KeyRange keys, bool values) {
  ForRows<V>(task, keys, values, [&](int32_t position, int32_t end, const std::byte* row) {
    const std::byte* const stop = row + int64_t{end - position} * task.row_stride;
    for (const std::byte* line = row; line < stop; line += 64) __builtin_prefetch(line, 0, 2);
  });
}

// The scales of `keys`, which lie in the chunk that begins at `base`. Others are left as they are.
template <typename V>
void LoadScales(const AttentionTask& task, KeyRange keys, int32_t base, const Scratch& scratch) {
  ForBlocks<V>(task, keys, [&](int32_t position, int32_t end, const std::byte* run, int32_t slot) {
    const float* const of_keys = reinterpret_cast<const float*>(run + task.key_scales_at) + slot;
    const float* const of_values = reinterpret_cast<const float*>(run + task.value_scales_at) + slot;
    const int32_t at = position - base, count = end - position;
    for (int32_t j = 0; j < count; j += 16) {
      const int n = count - j < 16 ? count - j : 16;
      V::LoadN(of_keys + j, n).StoreN(scratch.key_scales + at + j, n);
      V::LoadN(of_values + j, n).StoreN(scratch.value_scales + at + j, n);
    }
  });
}

// Fills the tile with the K rows (or, with `values`, V rows) of positions [first, first + 16) within `keys`; zeros
// elsewhere.
template <typename V, DType kType>
void FillTile(const AttentionTask& task, int32_t first, KeyRange keys, bool values, const Scratch& scratch) {
  const KeyRange wanted = keys.Within(first, first + kTileKeys);
  if (wanted.end - wanted.begin < kTileKeys) {
    for (int64_t i = 0; i < kTileKeys * scratch.padded; i += 16) V::Zero().Store(scratch.tile + i);
  }
  FetchAhead<V>(task, keys.Within(first + kTileKeys, first + 2 * kTileKeys), values);
  const int64_t row_step = values ? scratch.padded : 16, vector_step = values ? 16 : kTileKeys * 16;
  ForRows<V>(task, wanted, values, [&](int32_t position, int32_t end, const std::byte* row) {
    for (; position < end; ++position, row += task.row_stride) {
      float* to = scratch.tile + (position - first) * row_step;
      for (int64_t i = 0; i < scratch.padded; i += 16, to += vector_step) {
        LoadStored<V, kType>(row, i, task.head_dim - i).Store(to);
      }
    }
  });
}

template <typename V>
void LoadTile(const AttentionTask& task, int32_t first, KeyRange keys, bool values, const Scratch& scratch) {
  WithKvType<V>(task.kv_dtype, [&]<DType kType>() { FillTile<V, kType>(task, first, keys, values, scratch); });
}

}  // namespace quire::attention
