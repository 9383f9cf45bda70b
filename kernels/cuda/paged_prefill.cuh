#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/kv_cache.cuh"

// Causal attention of ragged query rows over the paged cache, as Ops::PagedAttention: prefill, chunks of it, and steps
// that mix it with decoding. The rows' own K and V are in the cache already.
namespace quire::cuda {

// 64 packed rows of a sequence from `first_row` on. Packed row r is query token r / group, head r % group of the KV
// head's group.
struct PrefillTile {
  int32_t sequence = 0;
  int32_t first_row = 0;
};
inline constexpr int32_t kPrefillRows = 64;

// The tiles of a batch, those with most keys first. cu_q_lens: [S + 1]. Host.
inline std::vector<PrefillTile> PlanPrefill(absl::Span<const int32_t> cu_q_lens, int32_t group) {
  std::vector<PrefillTile> tiles;
  for (size_t s = 0; s + 1 < cu_q_lens.size(); ++s) {
    const int32_t rows = (cu_q_lens[s + 1] - cu_q_lens[s]) * group;
    const int32_t last = (rows - 1) / kPrefillRows * kPrefillRows;
    for (int32_t first = rows > 0 ? last : -1; first >= 0; first -= kPrefillRows) {
      tiles.push_back({static_cast<int32_t>(s), first});
    }
  }
  return tiles;
}

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
