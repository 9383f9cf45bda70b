#pragma once

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/paged_prefill.cuh"

// The kernel of paged_prefill.cuh for one padded head size and storage, after FlashAttention-2 (Dao, 2023): each of
// four warps keeps 16 packed rows and goes through the keys they see, 32 at a time, which all warps load together, one
// step ahead.
namespace quire::cuda {

template <class Tile>
struct PrefillShape {
  static constexpr int kWarps = kPrefillRows / kTileRows;
  static constexpr int kThreads = kWarps * 32;  // two blocks an SM: for a third ptxas would spill
  static constexpr int kTilesPerStage = 2;
  static constexpr int kStageKeys = kTilesPerStage * kTileKeys;
  static constexpr int kStageBytes = kTilesPerStage * Tile::kBytes;
  static constexpr int kSharedBytes = 2 * kStageBytes + kWarps * Tile::kQueryBytes;
};

// Where the packed rows of a block are.
struct PrefillRows {
  int64_t first_token = 0;          // of the sequence, in the flat batch
  int first_row = 0, num_rows = 0;  // packed; num_rows of the whole sequence
  int first_head = 0, group = 0;
  int past = 0;  // keys before the first query token

  __device__ int Position(int row) const { return past + row / group; }
  __device__ int Head(int row) const { return first_head + row % group; }
  __device__ int64_t Token(int row) const { return first_token + row / group; }
};

template <class Tile>
__device__ __forceinline__ void LoadPrefillQueries(const PagedPrefillParams& p, const PrefillRows& where,
                                                   unsigned char* queries) {
  for (int i = static_cast<int>(threadIdx.x); i < kPrefillRows * Tile::kDim; i += PrefillShape<Tile>::kThreads) {
    const int row = where.first_row + i / Tile::kDim, dim = i % Tile::kDim;
    const bool exists = row < where.num_rows && dim < p.kv.head_dim;
    const int64_t from = where.Token(row) * p.q.stride + int64_t{where.Head(row)} * p.kv.head_dim + dim;
    unsigned char* tile = queries + i / Tile::kDim / kTileRows * Tile::kQueryBytes;
    StoreQuery<Tile>(tile, i / Tile::kDim % kTileRows, dim, exists ? LoadElement(p.q, from) : 0.0f);
  }
}

// Writes the warp's rows g and g + 8.
template <class Tile>
__device__ __forceinline__ void WritePrefillRows(const PagedPrefillParams& p, const PrefillRows& where, int warp_row,
                                                 int lane, const RowSums<Tile>& rows) {
  const float v_scale = Tile::kStorage == KvStorage::kE4m3 ? p.kv.v_scale : 1.0f;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + lane / 4 + 8 * half;
    if (row >= where.num_rows) continue;
    const int head = where.Head(row);
    float logsumexp;
    const float kept = v_scale * FinishSoftmax({rows.max[half], rows.sum[half]}, p.sinks != nullptr,
                                               p.sinks != nullptr ? p.sinks[head] : 0.0f, &logsumexp);
    const int64_t to = where.Token(row) * p.out.stride + int64_t{head} * p.kv.head_dim;
#pragma unroll
    for (int c = 0; c < Tile::kColumns; ++c) {
#pragma unroll
      for (int r = 2 * half; r < 2 * half + 2; ++r) {
        const int dim = DimensionOf<Tile>(c, lane % 4, r);
        if (dim < p.kv.head_dim) StoreElement(p.out, to + dim, rows.out[c][r] * kept);
      }
    }
    if (lane % 4 == 0 && p.logsumexp != nullptr) p.logsumexp[where.Token(row) * p.num_heads + head] = logsumexp;
  }
}

template <int kDim, KvStorage kStorage>
__global__ void __launch_bounds__(PrefillShape<AttentionTile<kDim, kStorage>>::kThreads, 2)
    PagedPrefillKernel(const __grid_constant__ PagedPrefillParams p) {
  using Tile = AttentionTile<kDim, kStorage>;
  using Shape = PrefillShape<Tile>;
  SIMT_DYNAMIC_SHARED(shared);
  const PrefillTile work = p.tiles[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y), group = p.num_heads / p.kv.num_kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int context = p.context_lens[work.sequence];
  const int tokens = p.cu_q_lens[work.sequence + 1] - p.cu_q_lens[work.sequence];
  const PrefillRows where{
      p.cu_q_lens[work.sequence], work.first_row, tokens * group, kv_head * group, group, context - tokens};
  const int32_t* table = p.block_tables + work.sequence * p.table_stride;
  unsigned char* queries = shared + 2 * Shape::kStageBytes;

  // The keys that any row of the block sees, those that any of the warp does, and those of this lane's two rows.
  const int warp_row = where.first_row + warp * kTileRows;
  const auto seen = [&](int first_row, int last_row) -> KeyRange {
    const int last = min(last_row, where.num_rows - 1);
    if (first_row > last) return {0, 0};
    const int low = p.window > 0 ? where.Position(first_row) - p.window + 1 : 0;
    return {max(low, 0), where.Position(last) + 1};
  };
  const KeyRange block_keys = seen(where.first_row, where.first_row + kPrefillRows - 1);
  const KeyRange warp_keys = seen(warp_row, warp_row + kTileRows - 1);
  QueryRow query_rows[2];
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + lane / 4 + 8 * half;
    const bool has_slope = p.alibi_slopes != nullptr && row < where.num_rows;
    query_rows[half] = {seen(row, row), where.Position(row), has_slope ? p.alibi_slopes[where.Head(row)] : 0.0f};
  }
  const ScoreRule rule{p.scale * (kStorage == KvStorage::kE4m3 ? p.kv.k_scale : 1.0f), p.softcap};

  const auto start = [&](int first, int stage) {
    for (int i = 0; i < Shape::kTilesPerStage; ++i) {
      const int key = first + i * kTileKeys;
      if (key >= block_keys.high) break;
      unsigned char* run = p.kv.run(table[key / p.kv.block_size], kv_head);
      StartTile<Tile>(p.kv, run, key, block_keys, shared + stage * Shape::kStageBytes + i * Tile::kBytes,
                      static_cast<int>(threadIdx.x), Shape::kThreads);
    }
    ptx::CommitCopies();
  };
  const int begin = block_keys.low / kTileKeys * kTileKeys;
  start(begin, 0);
  LoadPrefillQueries<Tile>(p, where, queries);

  RowSums<Tile> rows;
  int stage = 0;
  for (int first = begin; first < block_keys.high; first += Shape::kStageKeys) {
    start(first + Shape::kStageKeys, stage ^ 1);
    ptx::WaitCopies<1>();
    __syncthreads();  // the keys of all threads' copies, and the queries
    for (int i = 0; i < Shape::kTilesPerStage; ++i) {
      const int key = first + i * kTileKeys;
      if (key >= warp_keys.high || key + kTileKeys <= warp_keys.low) continue;
      const unsigned char* tile = shared + stage * Shape::kStageBytes + i * Tile::kBytes;
      float scores[2][4];
      ScoreTile<Tile>(tile, queries + warp * Tile::kQueryBytes, key, rule, query_rows, lane, scores);
      JoinTile<Tile>(tile, lane, scores, &rows);
    }
    __syncthreads();  // all have read before the next copies overwrite
    stage ^= 1;
  }
  ptx::WaitCopies<0>();
  FinishRows<Tile>(&rows);
  WritePrefillRows<Tile>(p, where, warp_row, lane, rows);
}

template <int kDim, KvStorage kStorage>
cudaError_t LaunchPagedPrefillKernel(const PagedPrefillParams& params, cudaStream_t stream) {
  using Shape = PrefillShape<AttentionTile<kDim, kStorage>>;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.num_tiles), static_cast<unsigned>(params.kv.num_kv_heads));
  config.block = dim3(Shape::kThreads);
  config.shared_bytes = Shape::kSharedBytes;
  config.stream = stream;
  return simt::Launch(config, PagedPrefillKernel<kDim, kStorage>, params);
}

}  // namespace quire::cuda
