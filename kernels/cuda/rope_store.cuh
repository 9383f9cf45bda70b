#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/kv_cache.cuh"

namespace quire::cuda {

// Rotates q and k in place, then stores k and v into the cache, as Ops::RopeAndStoreKv: qkv is [T, (HQ + 2 HKV) * D];
// cos_sin f32 [T, rotary_dim], cosines first; pairs are (i, i + rotary_dim / 2). An f16 cache saturates to +-65504, an
// e4m3 one to +-448 times its scale. rotary_dim: even, 0 (nothing is rotated) .. D.
struct RopeStoreParams {
  DeviceTensor qkv = {};
  const float* cos_sin = nullptr;
  const int32_t* slots = nullptr;  // device, [T]: block * block_size + offset; negative: not stored
  KvCacheView kv = {};
  int32_t tokens = 0, num_heads = 0, rotary_dim = 0;
};
cudaError_t LaunchRopeStore(const RopeStoreParams& params, cudaStream_t stream);

}  // namespace quire::cuda
