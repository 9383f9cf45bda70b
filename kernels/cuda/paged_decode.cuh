#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/decode_plan.h"
#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/kv_cache.cuh"

// Attention of one query token a sequence over the paged cache, as Ops::PagedAttention with one row a sequence. Two
// launches: the parts of a plan, then the merge of sequences that are in several. All sizes that a captured graph fixes
// are in the parameters; what varies from step to step lies in device memory.
namespace quire::cuda {

struct PagedDecodeParams {
  DeviceTensor q = {}, out = {};  // [S, HQ * D]; row s is the last position of sequence s
  KvCacheView kv = {};
  const int32_t* block_tables = nullptr;  // [S, table_stride]
  int64_t table_stride = 0;
  const int32_t* context_lens = nullptr;  // [S], the query's own token included
  // The plan: `max_splits` thread blocks a KV head are launched, those from *num_splits on have nothing to do.
  const DecodeSplit* splits = nullptr;
  const int32_t* num_splits = nullptr;
  const int32_t* merge_begin = nullptr;  // [S + 1]
  int32_t max_splits = 0;
  int32_t sequences = 0;
  // Partial results: [max_splits, HQ, D] sums relative to their maximum, and [max_splits, HQ] (maximum in log2 units,
  // sum).
  float* partial_out = nullptr;
  float2* partial_state = nullptr;
  int32_t num_heads = 0;  // a multiple of kv.num_kv_heads, at most 16 times as many
  float scale = 0;
  float softcap = 0;                    // 0: none
  int32_t window = 0;                   // 0: none
  const float* sinks = nullptr;         // [HQ] or null
  const float* alibi_slopes = nullptr;  // [HQ] or null
  float* logsumexp = nullptr;           // [S, HQ] or null
};

// cudaErrorInvalidValue for head sizes that are no multiple of 4 or above 256, blocks other than 16, 32, 64, groups
// above 16.
cudaError_t LaunchPagedDecode(const PagedDecodeParams& params, cudaStream_t stream);

}  // namespace quire::cuda
