#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/simt.cuh"
#include "kernels/cuda/tensor.cuh"

namespace quire::cuda {

constexpr int kParts = 4;       // of K
constexpr int kRowTile = 16;    // rows of a tensor core's tile
constexpr int kSkinnyCols = 2;  // tiles of 8 outputs that a block of the skinny kernel makes
constexpr int kTiledRows = 4, kTiledCols = 2;
constexpr int kTiledWarps = 4;

// --- values of a weight

// A lane's eight values of a tile's block as four packed pairs. Pairs 0 and 1 are the two fragments of the first step
// of 16, pairs 2 and 3 those of the second: inputs are permuted alike on both sides of the product.
template <WeightStorage kStorage>
__device__ __forceinline__ void LoadWeight(const DeviceWeight& w, int64_t tile_block, int lane, float (&values)[8]) {
  if constexpr (kStorage == WeightStorage::kF16) {
    const uint4 four = reinterpret_cast<const uint4*>(w.values)[tile_block * 32 + lane];
    const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = UnpackF16(pairs[i]);
      values[2 * i] = two.x, values[2 * i + 1] = two.y;
    }
  } else {
    const int64_t row = tile_block * kWeightTileRows + lane / 4;
    const float2 pair = UnpackF16(w.scales[row]);
    if constexpr (kStorage == WeightStorage::kInt4) {
      const uint32_t nibbles = reinterpret_cast<const uint32_t*>(w.values)[tile_block * 32 + lane];
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = static_cast<float>((nibbles >> (4 * i)) & 15u) * pair.x + pair.y;
    } else {
      const uint2 bytes = reinterpret_cast<const uint2*>(w.values)[tile_block * 32 + lane];
      const float scale = lane % 4 < 2 ? pair.x : pair.y;
      const float minimum = w.minimums != nullptr ? UnpackF16(w.minimums[row]).x : 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t word = i < 4 ? bytes.x : bytes.y;
        const int integer = static_cast<int>(word << (24 - 8 * (i % 4))) >> 24;
        values[i] = static_cast<float>(integer) * scale + minimum;
      }
    }
  }
}

template <WeightStorage kStorage>
__device__ __forceinline__ void LoadWeightPairs(const DeviceWeight& w, int64_t tile_block, int lane,
                                                uint32_t (&pairs)[4]) {
  if constexpr (kStorage == WeightStorage::kF16) {
    const uint4 four = reinterpret_cast<const uint4*>(w.values)[tile_block * 32 + lane];
    pairs[0] = four.x, pairs[1] = four.y, pairs[2] = four.z, pairs[3] = four.w;
  } else {
    float values[8];
    LoadWeight<kStorage>(w, tile_block, lane, values);
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = ptx::PackF16(values[2 * i], values[2 * i + 1]);
  }
}

// --- inputs

__global__ void __launch_bounds__(256) PrepareRowsKernel(const __grid_constant__ PrepareRowsParams p) {
  const int64_t row = blockIdx.x, first = row * p.x.stride;
  const int step = static_cast<int>(blockDim.x) * kVector;
  float x[kVector], largest = 0;
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.cols; c += step) {
    LoadVector(p.x, first + c, min(p.cols - c, kVector), x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) largest = fmaxf(largest, fabsf(x[i]));
  }
  largest = BlockMax(largest);
  // The exponent of the power of two; a row that holds an infinity keeps its values.
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  const int shift = exponent == 128 ? 0 : 14 - max(exponent, -100);
  const float scale = __uint_as_float(static_cast<uint32_t>(127 + shift) << 23);
  if (threadIdx.x == 0) p.scales[row] = __uint_as_float(static_cast<uint32_t>(127 - shift) << 23);
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.blocks * kWeightBlock; c += step) {
    LoadVector(p.x, first + c, min(max(p.cols - c, 0), kVector), x);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = ptx::PackF16(x[2 * i] * scale, x[2 * i + 1] * scale);
    const int64_t block_row = (row / kRowTile * p.blocks + c / kWeightBlock) * kRowTile + row % kRowTile;
    reinterpret_cast<uint4*>(p.out)[block_row * 4 + c % kWeightBlock / kVector] =
        make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

// A lane's fragments of 16 rows and a block: a[step] as ptx::MmaF16 takes them. Rows past the last are zeros.
__device__ __forceinline__ void LoadRows(const LinearParams& p, int row_tile, int block, int lane,
                                         uint32_t (&a)[2][4]) {
  const auto* pieces = reinterpret_cast<const uint4*>(p.x) + (int64_t{row_tile} * p.weight.blocks + block) * 64;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool exists = row_tile * kRowTile + lane / 4 + 8 * half < p.rows;
    const uint4 piece = exists ? pieces[lane + 32 * half] : make_uint4(0, 0, 0, 0);
    a[0][half] = piece.x, a[0][half + 2] = piece.y;
    a[1][half] = piece.z, a[1][half + 2] = piece.w;
  }
}

// --- products

// sums += rows * weights over blocks [begin, end), for kRows tiles of 16 rows and kCols tiles of 8 outputs.
template <WeightStorage kStorage, int kRows, int kCols>
__device__ __forceinline__ void AddBlocks(const LinearParams& p, int first_row_tile, int first_tile, int begin, int end,
                                          int lane, float (&sums)[kRows][kCols][4]) {
  const int num_tiles = (p.weight.rows + kWeightTileRows - 1) / kWeightTileRows;
  const int num_row_tiles = (p.rows + kRowTile - 1) / kRowTile;
#pragma unroll 2
  for (int block = begin; block < end; ++block) {
    uint32_t b[kCols][4];
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int64_t tile = min(first_tile + c, num_tiles - 1);  // what is there twice is written once
      LoadWeightPairs<kStorage>(p.weight, tile * p.weight.blocks + block, lane, b[c]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row_tile + r >= num_row_tiles) break;
      uint32_t a[2][4];
      LoadRows(p, first_row_tile + r, block, lane, a);
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        ptx::MmaF16(sums[r][c], a[0], b[c][0], b[c][1]);
        ptx::MmaF16(sums[r][c], a[1], b[c][2], b[c][3]);
      }
    }
  }
}

__device__ __forceinline__ void WriteOutput(const LinearParams& p, int row, int column, float sum) {
  if (row >= p.rows || column >= p.weight.rows) return;
  float value = sum * p.weight.row_scales[column] * p.x_scales[row];
  if (p.bias != nullptr) value += p.bias[column];
  const int64_t to = row * p.out.stride + p.first_column + column;
  StoreElement(p.out, to, p.add ? LoadElement(p.out, to) + value : value);
}

// Where part `part` of K begins.
__device__ __forceinline__ int PartBegin(int blocks, int part) {
  return static_cast<int>(int64_t{blocks} * part / kParts);
}

// Up to 16 rows: a warp takes one part of K, and four that share their outputs add up. What counts is how many bytes of
// weights are on their way at once.
template <WeightStorage kStorage>
__global__ void __launch_bounds__(kParts * 32) SkinnyLinearKernel(const __grid_constant__ LinearParams p) {
  constexpr int kColumns = kSkinnyCols * kWeightTileRows;
  SIMT_SHARED(float, parts, [kParts][kRowTile][kColumns]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_tile = static_cast<int>(blockIdx.x) * kSkinnyCols, row_tile = static_cast<int>(blockIdx.y);
  float sums[1][kSkinnyCols][4] = {};
  AddBlocks<kStorage, 1, kSkinnyCols>(p, row_tile, first_tile, PartBegin(p.weight.blocks, warp),
                                      PartBegin(p.weight.blocks, warp + 1), lane, sums);
#pragma unroll
  for (int c = 0; c < kSkinnyCols; ++c) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      parts[warp][lane / 4 + 8 * (r >> 1)][c * kWeightTileRows + lane % 4 * 2 + (r & 1)] = sums[0][c][r];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRowTile * kColumns; i += kParts * 32) {
    const int row = i / kColumns, column = i % kColumns;
    float sum = parts[0][row][column];
#pragma unroll
    for (int part = 1; part < kParts; ++part) sum += parts[part][row][column];
    WriteOutput(p, row_tile * kRowTile + row, first_tile * kWeightTileRows + column, sum);
  }
}

// Many rows: a warp makes 64 rows of 16 outputs, the parts one after the other. Nothing is shared but what caches hold.
template <WeightStorage kStorage>
__global__ void __launch_bounds__(kTiledWarps * 32) TiledLinearKernel(const __grid_constant__ LinearParams p) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int first_tile = (static_cast<int>(blockIdx.x) * kTiledWarps + warp) * kTiledCols;
  const int first_row_tile = static_cast<int>(blockIdx.y) * kTiledRows;
  if (first_tile * kWeightTileRows >= p.weight.rows) return;
  float totals[kTiledRows][kTiledCols][4];
  for (int part = 0; part < kParts; ++part) {
    float sums[kTiledRows][kTiledCols][4] = {};
    AddBlocks<kStorage, kTiledRows, kTiledCols>(p, first_row_tile, first_tile, PartBegin(p.weight.blocks, part),
                                                PartBegin(p.weight.blocks, part + 1), lane, sums);
#pragma unroll
    for (int r = 0; r < kTiledRows; ++r) {
#pragma unroll
      for (int c = 0; c < kTiledCols; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[r][c][i] = part == 0 ? sums[r][c][i] : totals[r][c][i] + sums[r][c][i];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kTiledRows; ++r) {
#pragma unroll
    for (int c = 0; c < kTiledCols; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        WriteOutput(p, (first_row_tile + r) * kRowTile + lane / 4 + 8 * (i >> 1),
                    (first_tile + c) * kWeightTileRows + lane % 4 * 2 + (i & 1), totals[r][c][i]);
      }
    }
  }
}

// --- embedding

template <WeightStorage kStorage>
__global__ void __launch_bounds__(128) EmbeddingKernel(const __grid_constant__ EmbeddingParams p) {
  const int64_t token = blockIdx.x;
  const int row = p.ids[token] - p.first_id;
  if (row < 0 || row >= p.table.rows) return;
  const float scale = p.table.row_scales[row];
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.cols; c += static_cast<int>(blockDim.x) * kVector) {
    const int lane = row % kWeightTileRows * 4 + c % kWeightBlock / kVector;
    float values[kVector];
    LoadWeight<kStorage>(p.table, int64_t{row / kWeightTileRows} * p.table.blocks + c / kWeightBlock, lane, values);
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] *= scale;
    StoreVector(p.out, token * p.out.stride + c, min(p.cols - c, kVector), values);
  }
}

// --- launchers

cudaError_t LaunchPrepareRows(const PrepareRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return cudaSuccess;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.rows));
  config.block = dim3(256);
  config.stream = stream;
  return simt::Launch(config, PrepareRowsKernel, params);
}

template <WeightStorage kStorage>
cudaError_t LaunchLinearOf(const LinearParams& params, cudaStream_t stream) {
  const int tiles = (params.weight.rows + kWeightTileRows - 1) / kWeightTileRows;
  const int row_tiles = (params.rows + kRowTile - 1) / kRowTile;
  const auto blocks = [](int items, int per_block) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
  };
  simt::LaunchConfig config;
  config.stream = stream;
  if (params.rows <= kRowTile) {
    config.grid = dim3(blocks(tiles, kSkinnyCols), static_cast<unsigned>(row_tiles));
    config.block = dim3(kParts * 32);
    return simt::Launch(config, SkinnyLinearKernel<kStorage>, params);
  }
  config.grid = dim3(blocks(tiles, kTiledCols * kTiledWarps), blocks(row_tiles, kTiledRows));
  config.block = dim3(kTiledWarps * 32);
  return simt::Launch(config, TiledLinearKernel<kStorage>, params);
}

cudaError_t LaunchLinear(const LinearParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.weight.rows == 0) return cudaSuccess;
  switch (params.weight.storage) {
    case WeightStorage::kF16:
      return LaunchLinearOf<WeightStorage::kF16>(params, stream);
    case WeightStorage::kInt8:
      return LaunchLinearOf<WeightStorage::kInt8>(params, stream);
    case WeightStorage::kInt4:
      return LaunchLinearOf<WeightStorage::kInt4>(params, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream) {
  if (params.tokens == 0 || params.cols == 0) return cudaSuccess;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.tokens));
  config.block = dim3(128);
  config.stream = stream;
  switch (params.table.storage) {
    case WeightStorage::kF16:
      return simt::Launch(config, EmbeddingKernel<WeightStorage::kF16>, params);
    case WeightStorage::kInt8:
      return simt::Launch(config, EmbeddingKernel<WeightStorage::kInt8>, params);
    case WeightStorage::kInt4:
      return simt::Launch(config, EmbeddingKernel<WeightStorage::kInt4>, params);
  }
  return cudaErrorInvalidValue;
}

}  // namespace quire::cuda
