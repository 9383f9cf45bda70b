#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/kv_cache.cuh"
#include "kernels/cuda/paged_decode.cuh"
#include "kernels/cuda/paged_prefill.cuh"

// The attention kernels are compiled for a few padded head sizes and storages, a file an instance
// (instantiations/attention_DIM_STORAGE.cu), which registers itself when the program starts. Head sizes between take
// the next instance, padded with zeros. So far: 64 and 128 of all storages; 256 of f16 and bf16; 80 and 96 of f16.
namespace quire::cuda {

struct AttentionInstance {
  int32_t dim = 0;
  KvStorage storage = KvStorage::kF16;
  cudaError_t (*decode)(const PagedDecodeParams& params, cudaStream_t stream) = nullptr;
  cudaError_t (*prefill)(const PagedPrefillParams& params, cudaStream_t stream) = nullptr;
};

// The smallest instance that holds the cache's head size; null if none does, or for head sizes that are no multiple of
// 4, blocks other than 16, 32 or 64 tokens, and groups of more than 16 heads.
const AttentionInstance* FindAttentionInstance(const KvCacheView& kv, int32_t num_heads);

// An object of this type at namespace scope adds an instance.
class RegisterAttentionInstance {
 public:
  explicit RegisterAttentionInstance(const AttentionInstance& instance);
};

}  // namespace quire::cuda
