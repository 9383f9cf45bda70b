#include "kernels/cuda/ptx_sm90.cuh"
#include "kernels/cuda/simt.cuh"
#include "tests/simt/conformance_kernels.h"

namespace quire::simt {

constexpr int kTile = 64, kStages = 2, kGemmThreads = 160;

struct Sm90GemmParams {
  CUtensorMap a, b;
  float* c;
  int m, n, k;
};

// Warp 4 loads tiles into a ring; warps 0 to 3 multiply them.
__global__ void __launch_bounds__(kGemmThreads) Sm90GemmKernel(const __grid_constant__ Sm90GemmParams p) {
  SIMT_DYNAMIC_SHARED(shared);
  auto* tiles_a = reinterpret_cast<__nv_bfloat16*>(shared);
  auto* tiles_b = tiles_a + kStages * kTile * kTile;
  auto* full = reinterpret_cast<uint64_t*>(tiles_b + kStages * kTile * kTile);
  auto* empty = full + kStages;
  const int thread = static_cast<int>(threadIdx.x), steps = (p.k + kTile - 1) / kTile;
  const int first_row = static_cast<int>(blockIdx.y) * kTile, first_column = static_cast<int>(blockIdx.x) * kTile;
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::MbarrierInit(full + i, 1);
      ptx::MbarrierInit(empty + i, 128);
    }
    ptx::FenceMbarrierInit();
  }
  __syncthreads();
  if (thread >= 128) {
    if (thread != 128) return;
    for (int s = 0; s < steps; ++s) {
      const int stage = s % kStages;
      if (s >= kStages) ptx::MbarrierWait(empty + stage, ((s / kStages) & 1) ^ 1);
      ptx::MbarrierArriveExpecting(full + stage, 2 * kTile * kTile * 2);
      ptx::TmaLoad2d(tiles_a + stage * kTile * kTile, &p.a, full + stage, s * kTile, first_row);
      ptx::TmaLoad2d(tiles_b + stage * kTile * kTile, &p.b, full + stage, s * kTile, first_column);
    }
    return;
  }
  float sums[32];
  for (float& sum : sums) sum = 0;
  for (int s = 0; s < steps; ++s) {
    const int stage = s % kStages;
    ptx::MbarrierWait(full + stage, (s / kStages) & 1);
    ptx::WgmmaFence();
    for (int k = 0; k < kTile / 16; ++k) {
      ptx::WgmmaBf16M64N64K16(sums, ptx::WgmmaDescriptor(tiles_a + stage * kTile * kTile + k * 16),
                              ptx::WgmmaDescriptor(tiles_b + stage * kTile * kTile + k * 16));
    }
    ptx::WgmmaCommit();
    ptx::WgmmaWait<0>();
    ptx::MbarrierArrive(empty + stage);
  }
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  for (int i = 0; i < 32; ++i) {
    const int row = first_row + 16 * warp + g + 8 * ((i >> 1) & 1);
    const int column = first_column + i / 4 * 8 + 2 * t + (i & 1);
    if (row < p.m && column < p.n) p.c[static_cast<int64_t>(row) * p.n + column] = sums[i];
  }
}

bool LaunchSm90Gemm(const uint16_t* a, const uint16_t* b, float* c, int m, int n, int k, cudaError_t* error) {
  Sm90GemmParams params{{}, {}, c, m, n, k};
  if (!ptx::MakeTensorMap(&params.a, a, static_cast<uint64_t>(m), static_cast<uint64_t>(k), kTile) ||
      !ptx::MakeTensorMap(&params.b, b, static_cast<uint64_t>(n), static_cast<uint64_t>(k), kTile)) {
    return false;
  }
  LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>((n + kTile - 1) / kTile), static_cast<unsigned>((m + kTile - 1) / kTile));
  config.block = dim3(kGemmThreads);
  config.shared_bytes = 2 * kStages * kTile * kTile * 2 + 2 * kStages * 8;
  *error = Launch(config, Sm90GemmKernel, params);
  return true;
}

}  // namespace quire::simt
