#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/base/kv_layout.h"

// The paged KV cache as kernels see it: [block][kv_head] runs (kernels/base/kv_layout.h), which begin at multiples of
// 16 bytes.
namespace quire::cuda {

// How K and V are stored.
//   kE4m3  value = stored * scale, one scale for all K and one for all V of a layer
//   kInt8  value = stored * scale, a scale a token and head
enum class KvStorage : int32_t { kF16, kBf16, kE4m3, kInt8 };

struct KvCacheView {
  unsigned char* data = nullptr;
  KvStorage storage = KvStorage::kF16;
  int32_t block_size = 0;  // tokens: 16, 32 or 64
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;            // a multiple of 4, at most 256
  float k_scale = 1, v_scale = 1;  // of kE4m3

  __host__ __device__ int64_t element_bytes() const {
    return storage == KvStorage::kF16 || storage == KvStorage::kBf16 ? 2 : 1;
  }
  __host__ __device__ int64_t row_bytes() const { return head_dim * element_bytes(); }
  // Of one block and head.
  __host__ __device__ KvRunLayout layout() const {
    return {block_size, row_bytes(), storage == KvStorage::kInt8 ? 4 : 0};
  }
  __host__ __device__ int64_t run_bytes() const { return layout().bytes(); }
  __host__ __device__ int64_t block_bytes() const { return num_kv_heads * run_bytes(); }

  __host__ __device__ unsigned char* run(int64_t block, int32_t kv_head) const {
    return data + (block * num_kv_heads + kv_head) * run_bytes();
  }
  // K of a slot of a run; V lies block_size rows behind.
  __host__ __device__ unsigned char* k_row(unsigned char* run, int32_t slot) const {
    return run + layout().k_row(slot);
  }
  __host__ __device__ unsigned char* v_row(unsigned char* run, int32_t slot) const {
    return run + layout().v_row(slot);
  }
  // kInt8: the scales of K by slot; those of V lie block_size floats behind.
  __host__ __device__ float* k_scales(unsigned char* run) const {
    return reinterpret_cast<float*>(run + layout().k_scale(0));
  }
};

}  // namespace quire::cuda
