#pragma once

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/paged_decode.cuh"

// The kernel of paged_decode.cuh for one padded head size and storage. Each block takes one split of one KV head; its
// warps take 16 keys in turn, each with a pipeline of its own: no warp waits for another before the end, where their
// sums are joined. The query heads of the group are the 16 rows of the tensor core's tile.
namespace quire::cuda {

template <class Tile>
struct DecodeShape {
  static constexpr int kWarps =
      Tile::kDim > 128 && !Tile::k8Bit ? 2 : 4;  // shared memory: at most 64 KiB and the queries
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kStages = 2;
  static constexpr int kWarpBytes = kStages * Tile::kBytes;
  // Joined at the end in the same memory: [16][kDim] sums a warp, then maximum and sum of each row.
  static_assert(kTileRows * Tile::kDim * 4 <= kWarpBytes);
  static constexpr int kStatesOffset = kWarps * kWarpBytes + Tile::kQueryBytes;
  static constexpr int kSharedBytes = kStatesOffset + kWarps * kTileRows * 8;
};

template <class Tile>
__device__ __forceinline__ void LoadDecodeQueries(const PagedDecodeParams& p, int sequence, int first_head, int group,
                                                  unsigned char* queries) {
  const int64_t row = sequence * p.q.stride + int64_t{first_head} * p.kv.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * Tile::kDim; i += DecodeShape<Tile>::kThreads) {
    const int head = i / Tile::kDim, dim = i % Tile::kDim;
    const bool exists = head < group && dim < p.kv.head_dim;
    StoreQuery<Tile>(queries, head, dim, exists ? LoadElement(p.q, row + head * p.kv.head_dim + dim) : 0.0f);
  }
}

// Joins what the warps have found and writes it: the output if the split is the whole, else a partial result.
template <class Tile>
__device__ __forceinline__ void WriteDecodeSplit(const PagedDecodeParams& p, const DecodeSplit& split, int first_head,
                                                 int group, const unsigned char* shared) {
  using Shape = DecodeShape<Tile>;
  const auto* states = reinterpret_cast<const float2*>(shared + Shape::kStatesOffset);
  const int dim = p.kv.head_dim;
  const float v_scale = Tile::kStorage == KvStorage::kE4m3 ? p.kv.v_scale : 1.0f;
  for (int i = static_cast<int>(threadIdx.x); i < group * dim; i += Shape::kThreads) {
    const int row = i / dim, d = i % dim, head = first_head + row;
    SoftmaxState state;
    for (int w = 0; w < Shape::kWarps; ++w) state.max = fmaxf(state.max, states[w * kTileRows + row].x);
    float value = 0;
    for (int w = 0; w < Shape::kWarps; ++w) {
      const float2 part = states[w * kTileRows + row];
      const float weight = RescaleTo(state.max, part.x);
      state.sum += part.y * weight;
      value += reinterpret_cast<const float*>(shared + w * Shape::kWarpBytes)[row * Tile::kDim + d] * weight;
    }
    if (split.partial >= 0) {
      const int64_t to = int64_t{split.partial} * p.num_heads + head;
      p.partial_out[to * dim + d] = value * v_scale;
      if (d == 0) p.partial_state[to] = make_float2(state.max, state.sum);
      continue;
    }
    float logsumexp;
    const float kept = FinishSoftmax(state, p.sinks != nullptr, p.sinks != nullptr ? p.sinks[head] : 0.0f, &logsumexp);
    StoreElement(p.out, split.sequence * p.out.stride + int64_t{head} * dim + d, value * v_scale * kept);
    if (d == 0 && p.logsumexp != nullptr) p.logsumexp[int64_t{split.sequence} * p.num_heads + head] = logsumexp;
  }
}

template <int kDim, KvStorage kStorage>
__global__ void __launch_bounds__(DecodeShape<AttentionTile<kDim, kStorage>>::kThreads)
    PagedDecodeKernel(const __grid_constant__ PagedDecodeParams p) {
  using Tile = AttentionTile<kDim, kStorage>;
  using Shape = DecodeShape<Tile>;
  SIMT_DYNAMIC_SHARED(shared);
  if (static_cast<int>(blockIdx.x) >= *p.num_splits) return;
  const DecodeSplit split = p.splits[blockIdx.x];
  const int kv_head = static_cast<int>(blockIdx.y), group = p.num_heads / p.kv.num_kv_heads;
  const int first_head = kv_head * group;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  unsigned char* queries = shared + Shape::kWarps * Shape::kWarpBytes;
  unsigned char* stages = shared + warp * Shape::kWarpBytes;
  const int32_t* table = p.block_tables + split.sequence * p.table_stride;
  const int context = p.context_lens[split.sequence];
  const KeyRange keys{max(split.begin, p.window > 0 ? context - p.window : 0), split.end};

  const auto start = [&](int first, int stage) {
    if (first < split.end) {
      unsigned char* run = p.kv.run(table[first / p.kv.block_size], kv_head);
      StartTile<Tile>(p.kv, run, first, keys, stages + stage * Tile::kBytes, lane, 32);
    }
    ptx::CommitCopies();
  };
  constexpr int kStep = Shape::kWarps * kTileKeys;
  const int begin = split.begin + warp * kTileKeys;
  start(begin, 0);
  LoadDecodeQueries<Tile>(p, split.sequence, first_head, group, queries);
  const ScoreRule rule{p.scale * (kStorage == KvStorage::kE4m3 ? p.kv.k_scale : 1.0f), p.softcap};
  QueryRow query_rows[2];
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    const bool has_slope = p.alibi_slopes != nullptr && row < group;
    query_rows[half] = {keys, context - 1, has_slope ? p.alibi_slopes[first_head + row] : 0.0f};
  }
  __syncthreads();  // the queries

  RowSums<Tile> rows;
  int stage = 0;
  for (int first = begin; first < split.end; first += kStep) {
    start(first + kStep, stage ^ 1);
    ptx::WaitCopies<1>();
    __syncwarp();
    float scores[2][4];
    const unsigned char* tile = stages + stage * Tile::kBytes;
    ScoreTile<Tile>(tile, queries, first, rule, query_rows, lane, scores);
    JoinTile<Tile>(tile, lane, scores, &rows);
    __syncwarp();  // the tile is read before the next copies overwrite it
    stage ^= 1;
  }
  ptx::WaitCopies<0>();
  __syncwarp();
  FinishRows<Tile>(&rows);

  auto* sums = reinterpret_cast<float*>(stages);
  auto* states = reinterpret_cast<float2*>(shared + Shape::kStatesOffset);
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int c = 0; c < Tile::kColumns; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[(g + 8 * (r >> 1)) * kDim + DimensionOf<Tile>(c, t, r)] = rows.out[c][r];
  }
  if (t == 0) {
    for (int half = 0; half < 2; ++half) {
      states[warp * kTileRows + g + 8 * half] = make_float2(rows.max[half], rows.sum[half]);
    }
  }
  __syncthreads();
  WriteDecodeSplit<Tile>(p, split, first_head, group, shared);
}

template <int kDim, KvStorage kStorage>
cudaError_t LaunchPagedDecodeKernel(const PagedDecodeParams& params, cudaStream_t stream) {
  using Shape = DecodeShape<AttentionTile<kDim, kStorage>>;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.max_splits), static_cast<unsigned>(params.kv.num_kv_heads));
  config.block = dim3(Shape::kThreads);
  config.shared_bytes = Shape::kSharedBytes;
  config.stream = stream;
  return simt::Launch(config, PagedDecodeKernel<kDim, kStorage>, params);
}

}  // namespace quire::cuda
