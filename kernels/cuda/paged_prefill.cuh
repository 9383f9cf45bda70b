#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/kv_cache.cuh"
#include "kernels/cuda/prefill_plan.h"

// Causal attention of ragged query rows over the paged cache, as Ops::PagedAttention: prefill, chunks of it, and steps
// that mix it with decoding. The rows' own K and V are in the cache already.
namespace quire::cuda {

struct PagedPrefillParams {
  DeviceTensor q = {}, out = {};  // [T, HQ * D]
  KvCacheView kv = {};
  const int32_t* block_tables = nullptr;  // [S, table_stride]
  int64_t table_stride = 0;
  const int32_t* context_lens = nullptr;  // [S], this step's rows included
  const int32_t* cu_q_lens = nullptr;     // [S + 1]
  const PrefillTile* tiles = nullptr;
  int32_t num_tiles = 0;
  int32_t num_heads = 0;  // a multiple of kv.num_kv_heads, at most 16 times as many
  float scale = 0;
  float softcap = 0;                    // 0: none
  int32_t window = 0;                   // 0: none
  const float* sinks = nullptr;         // [HQ] or null
  const float* alibi_slopes = nullptr;  // [HQ] or null
  float* logsumexp = nullptr;           // [T, HQ] or null
};

// Errors as LaunchPagedDecode.
cudaError_t LaunchPagedPrefill(const PagedPrefillParams& params, cudaStream_t stream);

}  // namespace quire::cuda
