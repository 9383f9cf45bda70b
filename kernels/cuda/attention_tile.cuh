#pragma once

#include <cstdint>

#include "kernels/cuda/kv_cache.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/tensor.cuh"

// What one warp does with one tile of attention: 16 packed query rows against 16 keys, on mma.sync. Decode and prefill
// differ only in how they hand tiles to warps.
//
// Shared memory holds a tile of K, one of V, each [16 keys][kDim] as stored, and for int8 the scales of both.
// Dimensions from head_dim to kDim, and keys that no row may see, are zeros. Lane = 4 g + t, as in
// kernels/cuda/ptx.cuh.
namespace quire::cuda {

inline constexpr int kTileKeys = 16;
inline constexpr int kTileRows = 16;

// kDim: padded head size, a multiple of 16, of 32 for 8-bit storage.
template <int kDimension, KvStorage kKvStorage>
struct AttentionTile {
  static constexpr int kDim = kDimension;
  static constexpr KvStorage kStorage = kKvStorage;
  static constexpr bool k8Bit = kStorage == KvStorage::kE4m3 || kStorage == KvStorage::kInt8;
  // int8 values are exact in bf16, and a probability times a scale keeps its range there.
  static constexpr bool kIsBf16 = kStorage == KvStorage::kBf16 || kStorage == KvStorage::kInt8;
  static constexpr int kRowBytes = kDim * (k8Bit ? 1 : 2);
  static constexpr int kMatrixBytes = kTileKeys * kRowBytes;
  static constexpr int kScaleBytes = kStorage == KvStorage::kInt8 ? 2 * kTileKeys * 4 : 0;
  static constexpr int kBytes = 2 * kMatrixBytes + kScaleBytes;  // K, V, scales of K, scales of V
  static constexpr int kQueryBytes = kTileRows * kDim * 2;
  static constexpr int kSteps = kDim / 16;   // of the product over dimensions
  static constexpr int kColumns = kDim / 8;  // fragments of 8 output dimensions
  static_assert(kDim % (k8Bit ? 32 : 16) == 0 && kBytes % 128 == 0);
};

// Where byte `offset` of a tile lies: 16-byte pieces change places within 128 bytes, so that eight rows of one column
// lie in different banks. Rows of 128 bytes or less share a line of banks, longer ones of a power of two have their
// own.
template <int kRowBytes>
__device__ __forceinline__ int Swizzle(int offset) {
  constexpr int kShift = kRowBytes == 512 ? 9 : kRowBytes == 256 ? 8 : 7;
  return offset ^ (((offset >> kShift) & 7) << 4);
}

// --- loading

// The keys that a load may touch: [low, high) of the sequence.
struct KeyRange {
  int low = 0, high = 0;
  __device__ bool Contains(int key) const { return key >= low && key < high; }
};

// Starts the copies of one thread, `thread` of `threads`, of the tile that begins at key `first` (a multiple of 16).
// The caller commits them.
template <class Tile, int kPiece>
__device__ __forceinline__ void StartTile(const KvCacheView& kv, unsigned char* run, int first, KeyRange keys,
                                          unsigned char* tile, int thread, int threads) {
  constexpr int kPieces = Tile::kRowBytes / kPiece;
  const int row_bytes = static_cast<int>(kv.row_bytes()), slot = first % kv.block_size;
  const unsigned char* k = kv.k_row(run, slot);
  const unsigned char* v = kv.v_row(run, slot);
  for (int i = thread; i < kTileKeys * kPieces; i += threads) {
    const int row = i / kPieces, byte = i % kPieces * kPiece;
    const bool wanted = keys.Contains(first + row) && byte < row_bytes;
    const int to = Swizzle<Tile::kRowBytes>(row * Tile::kRowBytes + byte), from = wanted ? row * row_bytes + byte : 0;
    ptx::CopyAsync<kPiece>(tile + to, k + from, wanted ? kPiece : 0);
    ptx::CopyAsync<kPiece>(tile + Tile::kMatrixBytes + to, v + from, wanted ? kPiece : 0);
  }
  if constexpr (Tile::kStorage == KvStorage::kInt8) {
    const float* scales = kv.k_scales(run) + slot;
    for (int i = thread; i < 2 * kTileKeys; i += threads) {
      const int row = i % kTileKeys;
      const bool wanted = keys.Contains(first + row);
      const float* from = scales + (i < kTileKeys ? 0 : kv.block_size) + (wanted ? row : 0);
      ptx::CopyAsync<4>(tile + 2 * Tile::kMatrixBytes + i * 4, from, wanted ? 4 : 0);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void StartTile(const KvCacheView& kv, unsigned char* run, int first, KeyRange keys,
                                          unsigned char* tile, int thread, int threads) {
  if (kv.row_bytes() % 16 == 0) {
    StartTile<Tile, 16>(kv, run, first, keys, tile, thread, threads);
  } else {
    StartTile<Tile, 4>(kv, run, first, keys, tile, thread, threads);
  }
}

// Stores value `dim` of packed query row `row` into a tile of queries.
template <class Tile>
__device__ __forceinline__ void StoreQuery(unsigned char* queries, int row, int dim, float value) {
  unsigned char* to = queries + Swizzle<Tile::kDim * 2>((row * Tile::kDim + dim) * 2);
  *reinterpret_cast<uint16_t*>(to) = Tile::kIsBf16 ? Bf16Bits(value) : F16Bits(value);
}

// --- products

template <class Tile>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (Tile::kIsBf16) {
    ptx::MmaBf16(d, a, b0, b1);
  } else {
    ptx::MmaF16(d, a, b0, b1);
  }
}

template <class Tile>
__device__ __forceinline__ uint32_t Unpack8(uint32_t bytes) {
  return Tile::kStorage == KvStorage::kInt8 ? ptx::Int8PairToBf16(bytes) : ptx::E4m3PairToF16(bytes);
}

// The fragment of 16 dimensions of the queries. For 8-bit keys the dimensions are permuted alike on both sides, so that
// a lane's four of a key are one 4-byte load: its pairs are 4 t, 4 t + 1 and 4 t + 2, 4 t + 3.
template <class Tile>
__device__ __forceinline__ void LoadQuery(const unsigned char* queries, int step, int lane, uint32_t (&a)[4]) {
  if constexpr (Tile::k8Bit) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint2 four = *reinterpret_cast<const uint2*>(
          queries + Swizzle<Tile::kDim * 2>(((g + 8 * half) * Tile::kDim + 16 * step + 4 * t) * 2));
      a[half] = four.x;
      a[half + 2] = four.y;
    }
  } else {
    ptx::LdMatrix4(a, queries + Swizzle<Tile::kDim * 2>((lane % 16 * Tile::kDim + 16 * step + lane / 16 * 8) * 2));
  }
}

// scores += queries * keys^T; scores[n][r]: row g + 8 (r >> 1), key 8 n + 2 t + (r & 1) of the tile.
template <class Tile>
__device__ __forceinline__ void MultiplyKeys(const unsigned char* tile, int step, int lane, const uint32_t (&a)[4],
                                             float (&scores)[2][4]) {
  if constexpr (Tile::k8Bit) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const uint32_t bytes = *reinterpret_cast<const uint32_t*>(
          tile + Swizzle<Tile::kRowBytes>((g + 8 * n) * Tile::kRowBytes + 16 * step + 4 * t));
      Mma<Tile>(scores[n], a, Unpack8<Tile>(bytes), Unpack8<Tile>(bytes >> 16));
    }
  } else {
    const int row = lane % 8 + lane / 16 * 8, piece = 2 * step + lane / 8 % 2;
    uint32_t b[4];
    ptx::LdMatrix4(b, tile + Swizzle<Tile::kRowBytes>(row * Tile::kRowBytes + piece * 16));
    Mma<Tile>(scores[0], a, b[0], b[1]);
    Mma<Tile>(scores[1], a, b[2], b[3]);
  }
}

// out += weights (16 rows x 16 keys, as an A fragment) * V of the tile.
template <class Tile>
__device__ __forceinline__ void MultiplyValues(const unsigned char* values, int lane, const uint32_t (&weights)[4],
                                               float (&out)[Tile::kColumns][4]) {
  if constexpr (Tile::k8Bit) {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < Tile::kDim / 32; ++j) {
      uint32_t words[4];  // keys 2 t, 2 t + 1, 2 t + 8, 2 t + 9; dimensions 32 j + 4 g ..
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int key = 2 * t + (k & 1) + 8 * (k >> 1);
        words[k] = *reinterpret_cast<const uint32_t*>(values +
                                                      Swizzle<Tile::kRowBytes>(key * Tile::kRowBytes + 32 * j + 4 * g));
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t selector = static_cast<uint32_t>(n | (n + 4) << 4);
        Mma<Tile>(out[4 * j + n], weights, Unpack8<Tile>(__byte_perm(words[0], words[1], selector)),
                  Unpack8<Tile>(__byte_perm(words[2], words[3], selector)));
      }
    }
  } else {
#pragma unroll
    for (int j = 0; j < Tile::kDim / 16; ++j) {
      uint32_t b[4];
      ptx::LdMatrix4Transposed(
          b, values + Swizzle<Tile::kRowBytes>(lane % 16 * Tile::kRowBytes + (2 * j + lane / 16) * 16));
      Mma<Tile>(out[2 * j], weights, b[0], b[1]);
      Mma<Tile>(out[2 * j + 1], weights, b[2], b[3]);
    }
  }
}

// The dimension of value r of output fragment `column`.
template <class Tile>
__device__ __forceinline__ int DimensionOf(int column, int t, int r) {
  if constexpr (Tile::k8Bit) return column / 4 * 32 + 8 * t + 4 * (r & 1) + column % 4;
  return column * 8 + 2 * t + (r & 1);
}

// --- scores

// What a row of queries sees: its keys, and what ALiBi needs. A row that does not exist sees none.
struct QueryRow {
  KeyRange keys;
  int position = 0;
  float slope = 0;
};

// The scores of the tile that begins at key `first`, in log2 units, -inf where masked, for the warp's rows g and g + 8.
template <class Tile>
__device__ __forceinline__ void ScoreTile(const unsigned char* tile, const unsigned char* queries, int first,
                                          const ScoreRule& rule, const QueryRow (&rows)[2], int lane,
                                          float (&scores)[2][4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int r = 0; r < 4; ++r) scores[n][r] = 0;
  }
#pragma unroll
  for (int step = 0; step < Tile::kSteps; ++step) {
    uint32_t a[4];
    LoadQuery<Tile>(queries, step, lane, a);
    MultiplyKeys<Tile>(tile, step, lane, a, scores);
  }
  const auto* k_scales = reinterpret_cast<const float*>(tile + 2 * Tile::kMatrixBytes);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int in_tile = 8 * n + 2 * (lane % 4) + (r & 1), key = first + in_tile;
      const QueryRow& row = rows[r >> 1];
      float dot = scores[n][r];
      if constexpr (Tile::kStorage == KvStorage::kInt8) dot *= k_scales[in_tile];
      const float score = AdjustScore(rule, dot, row.slope, row.position - key);
      scores[n][r] = row.keys.Contains(key) ? score : -INFINITY;
    }
  }
}

// --- the running softmax of the warp's rows g and g + 8, before the sum over the four lanes of a row

template <class Tile>
struct RowSums {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  float out[Tile::kColumns][4] = {};
};

// Joins a tile: scores in log2 units, -inf where masked.
template <class Tile>
__device__ __forceinline__ void JoinTile(const unsigned char* tile, int lane, float (&scores)[2][4],
                                         RowSums<Tile>* rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float max =
        fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]), fmaxf(scores[1][2 * half], scores[1][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
    max = fmaxf(max, rows->max[half]);
    const float kept = RescaleTo(max, rows->max[half]), base = max == -INFINITY ? 0.0f : max;
    rows->max[half] = max;
    rows->sum[half] *= kept;
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
      rows->out[c][2 * half] *= kept;
      rows->out[c][2 * half + 1] *= kept;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int r = 2 * half; r < 2 * half + 2; ++r) {
        scores[n][r] = ptx::Exp2(scores[n][r] - base);
        rows->sum[half] += scores[n][r];
      }
    }
  }
  if constexpr (Tile::kStorage == KvStorage::kInt8) {
    const auto* scales = reinterpret_cast<const float*>(tile + 2 * Tile::kMatrixBytes) + kTileKeys;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) scores[n][r] *= scales[8 * n + 2 * (lane % 4) + (r & 1)];
    }
  }
  uint32_t weights[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = scores[i / 2][i % 2 * 2], high = scores[i / 2][i % 2 * 2 + 1];
    weights[i] = Tile::kIsBf16 ? ptx::PackBf16(low, high) : ptx::PackF16(low, high);
  }
  MultiplyValues<Tile>(tile + Tile::kMatrixBytes, lane, weights, rows->out);
}

// The sums over the four lanes of each row.
template <class Tile>
__device__ __forceinline__ void FinishRows(RowSums<Tile>* rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows->sum[half] += __shfl_xor_sync(0xffffffffu, rows->sum[half], 1);
    rows->sum[half] += __shfl_xor_sync(0xffffffffu, rows->sum[half], 2);
  }
}

}  // namespace quire::cuda
