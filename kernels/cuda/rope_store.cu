#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/rope_store.cuh"
#include "kernels/cuda/tensor.cuh"

namespace quire::cuda {

constexpr int kRopeWarps = 4;
constexpr int kMaxPerLane = 8;  // values of a head: 256 / 32

// NaN stays NaN.
__device__ __forceinline__ float SaturateToF16(float value) {
  return value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value;
}

// Stores the values that the lanes hold (value j of a lane is dimension lane + 32 j) into a row of the cache.
template <KvStorage kStorage>
__device__ __forceinline__ void StoreRow(unsigned char* row, float* scale_of_slot, float scale, int dim, int lane,
                                         const float (&values)[kMaxPerLane]) {
  float inverse = 1.0f;
  if constexpr (kStorage == KvStorage::kInt8) {
    float largest = 0;
    bool finite = true;
    for (int j = 0; j < kMaxPerLane; ++j) {
      largest = fmaxf(largest, fabsf(values[j]));
      finite = finite && fabsf(values[j]) < INFINITY;
    }
    largest = WarpMax(largest);
    finite = __all_sync(0xffffffffu, finite) != 0;
    inverse = KvInt8Factor(largest);
    if (lane == 0) *scale_of_slot = finite ? KvInt8Scale(largest) : NAN;
    if (!finite) {
      for (int d = lane; d < dim; d += 32) row[d] = 0;
      return;
    }
  } else if constexpr (kStorage == KvStorage::kE4m3) {
    inverse = 1.0f / scale;
  }
  for (int j = 0; j < kMaxPerLane; ++j) {
    const int d = lane + 32 * j;
    if (d >= dim) break;
    const float value = values[j] * inverse;
    if constexpr (kStorage == KvStorage::kF16) {
      reinterpret_cast<uint16_t*>(row)[d] = F16Bits(SaturateToF16(value));
    } else if constexpr (kStorage == KvStorage::kBf16) {
      reinterpret_cast<uint16_t*>(row)[d] = Bf16Bits(value);
    } else if constexpr (kStorage == KvStorage::kE4m3) {
      row[d] = ptx::ToE4m3(value);
    } else {
      reinterpret_cast<int8_t*>(row)[d] = static_cast<int8_t>(rintf(value));
    }
  }
}

// One warp a token and head: of q, then of k, then of v.
template <KvStorage kStorage>
__global__ void __launch_bounds__(kRopeWarps * 32) RopeStoreKernel(const __grid_constant__ RopeStoreParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kRopeWarps + static_cast<int>(threadIdx.x) / 32;
  const int kv_heads = p.kv.num_kv_heads, dim = p.kv.head_dim;
  if (head >= p.num_heads + 2 * kv_heads) return;
  const int64_t token = blockIdx.x, first = token * p.qkv.stride + int64_t{head} * dim;
  const bool is_v = head >= p.num_heads + kv_heads;
  const int rotary = is_v ? 0 : p.rotary_dim, half = rotary / 2;
  const float* cos = p.cos_sin + token * p.rotary_dim;
  const float* sin = cos + half;

  float values[kMaxPerLane];
  for (int j = 0; j < kMaxPerLane; ++j) {
    const int d = lane + 32 * j;
    values[j] = d < dim ? LoadElement(p.qkv, first + d) : 0.0f;
    if (d >= rotary) continue;
    if (d < half) {
      values[j] = values[j] * cos[d] - LoadElement(p.qkv, first + d + half) * sin[d];
    } else {
      values[j] = values[j] * cos[d - half] + LoadElement(p.qkv, first + d - half) * sin[d - half];
    }
  }
  __syncwarp();  // all have read before anyone writes
  for (int j = 0; j < kMaxPerLane; ++j) {
    const int d = lane + 32 * j;
    if (d < rotary) StoreElement(p.qkv, first + d, values[j]);
  }
  const int32_t slot = p.slots[token];
  if (head < p.num_heads || slot < 0) return;
  const int kv_head = is_v ? head - p.num_heads - kv_heads : head - p.num_heads, offset = slot % p.kv.block_size;
  unsigned char* run = p.kv.run(slot / p.kv.block_size, kv_head);
  unsigned char* row = is_v ? p.kv.v_row(run, offset) : p.kv.k_row(run, offset);
  float* scale_of_slot = p.kv.k_scales(run) + (is_v ? p.kv.block_size : 0) + offset;
  StoreRow<kStorage>(row, scale_of_slot, is_v ? p.kv.v_scale : p.kv.k_scale, dim, lane, values);
}

cudaError_t LaunchRopeStore(const RopeStoreParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return cudaSuccess;
  const int heads = params.num_heads + 2 * params.kv.num_kv_heads;
  simt::LaunchConfig config;
  config.grid =
      dim3(static_cast<unsigned>(params.tokens), static_cast<unsigned>((heads + kRopeWarps - 1) / kRopeWarps));
  config.block = dim3(kRopeWarps * 32);
  config.stream = stream;
  switch (params.kv.storage) {
    case KvStorage::kF16:
      return simt::Launch(config, RopeStoreKernel<KvStorage::kF16>, params);
    case KvStorage::kBf16:
      return simt::Launch(config, RopeStoreKernel<KvStorage::kBf16>, params);
    case KvStorage::kE4m3:
      return simt::Launch(config, RopeStoreKernel<KvStorage::kE4m3>, params);
    case KvStorage::kInt8:
      return simt::Launch(config, RopeStoreKernel<KvStorage::kInt8>, params);
  }
  return cudaErrorInvalidValue;
}

}  // namespace quire::cuda
