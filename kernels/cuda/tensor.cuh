#pragma once

#include <cstdint>

#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/simt.cuh"

// Access to matrices of activations (device_tensor.h), and sums over threads.
namespace quire::cuda {

// Values that a thread takes at a time: 16 bytes of a 16-bit type.
inline constexpr int kVector = 8;

// 16-bit values move as integers: g++ does not tell the race detector of a class that a call returns into memory.
__device__ __forceinline__ uint16_t F16Bits(float value) { return ptx::BitCast<uint16_t>(__float2half_rn(value)); }
__device__ __forceinline__ uint16_t Bf16Bits(float value) { return ptx::BitCast<uint16_t>(__float2bfloat16_rn(value)); }

__device__ __forceinline__ float LoadElement(const DeviceTensor& tensor, int64_t index) {
  if (tensor.dtype == DType::kF32) return static_cast<const float*>(tensor.data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(tensor.data)[index];
  if (tensor.dtype == DType::kF16) return __half2float(ptx::BitCast<__half>(bits));
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

__device__ __forceinline__ void StoreElement(const DeviceTensor& tensor, int64_t index, float value) {
  if (tensor.dtype == DType::kF32) {
    static_cast<float*>(tensor.data)[index] = value;
  } else {
    static_cast<uint16_t*>(tensor.data)[index] = tensor.dtype == DType::kF16 ? F16Bits(value) : Bf16Bits(value);
  }
}

__device__ __forceinline__ float2 UnpackF16(uint32_t bits) { return __half22float2(ptx::BitCast<__half2>(bits)); }
__device__ __forceinline__ float2 UnpackBf16(uint32_t bits) {
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

// The bytes of element `index`.
__host__ __device__ __forceinline__ unsigned char* AddressOf(const DeviceTensor& tensor, int64_t index) {
  return static_cast<unsigned char*>(tensor.data) + index * (tensor.dtype == DType::kF32 ? 4 : 2);
}

__device__ __forceinline__ bool IsAligned16(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & 15) == 0;
}

// `count` (1..8) values from element `index` on; the rest are zeros. Eight at an aligned address come by 16-byte loads.
__device__ __forceinline__ void LoadVector(const DeviceTensor& tensor, int64_t index, int count,
                                           float (&values)[kVector]) {
  const unsigned char* address = AddressOf(tensor, index);
  if (count < kVector || !IsAligned16(address)) {
    for (int i = 0; i < kVector; ++i) values[i] = i < count ? LoadElement(tensor, index + i) : 0.0f;
    return;
  }
  if (tensor.dtype == DType::kF32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 four = reinterpret_cast<const float4*>(address)[half];
      values[4 * half] = four.x, values[4 * half + 1] = four.y;
      values[4 * half + 2] = four.z, values[4 * half + 3] = four.w;
    }
    return;
  }
  const uint4 packed = *reinterpret_cast<const uint4*>(address);
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = tensor.dtype == DType::kF16 ? UnpackF16(pairs[i]) : UnpackBf16(pairs[i]);
    values[2 * i] = two.x, values[2 * i + 1] = two.y;
  }
}

__device__ __forceinline__ void StoreVector(const DeviceTensor& tensor, int64_t index, int count,
                                            const float (&values)[kVector]) {
  unsigned char* address = AddressOf(tensor, index);
  if (count < kVector || !IsAligned16(address)) {
    for (int i = 0; i < count; ++i) StoreElement(tensor, index + i, values[i]);
    return;
  }
  if (tensor.dtype == DType::kF32) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      reinterpret_cast<float4*>(address)[half] =
          make_float4(values[4 * half], values[4 * half + 1], values[4 * half + 2], values[4 * half + 3]);
    }
    return;
  }
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = tensor.dtype == DType::kF16 ? ptx::PackF16(values[2 * i], values[2 * i + 1])
                                           : ptx::PackBf16(values[2 * i], values[2 * i + 1]);
  }
  *reinterpret_cast<uint4*>(address) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// --- sums over threads, in a fixed order

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// Joins what the warps hold, in their order, for every thread. The block is a multiple of 32 threads, at most 1024.
template <typename Join>
__device__ __forceinline__ float JoinWarps(float value, Join join) {
  SIMT_SHARED(float, warp_values, [32]);
  const int warp = static_cast<int>(threadIdx.x) / 32, num_warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) warp_values[warp] = value;
  __syncthreads();
  float joined = warp_values[0];
  for (int w = 1; w < num_warps; ++w) joined = join(joined, warp_values[w]);
  return joined;
}

// The sum and the largest value over the block.
__device__ __forceinline__ float BlockSum(float value) {
  return JoinWarps(WarpSum(value), [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float BlockMax(float value) {
  return JoinWarps(WarpMax(value), [](float a, float b) { return fmaxf(a, b); });
}

}  // namespace quire::cuda
