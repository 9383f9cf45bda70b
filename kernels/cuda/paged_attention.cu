// The launchers of paged attention, the registry of its instances, and the merge of split sequences.
#include "kernels/cuda/attention_instance.cuh"
#include "kernels/cuda/paged_decode.cuh"
#include "kernels/cuda/paged_prefill.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/tensor.cuh"

namespace quire::cuda {

// --- the registry

struct AttentionRegistry {
  AttentionInstance instances[32];
  int count = 0;
};

// Made at its first use, which is before main.
AttentionRegistry& Registry() {
  static AttentionRegistry registry;
  return registry;
}

RegisterAttentionInstance::RegisterAttentionInstance(const AttentionInstance& instance) {
  AttentionRegistry& registry = Registry();
  registry.instances[registry.count++] = instance;
}

const AttentionInstance* FindAttentionInstance(const KvCacheView& kv, int32_t num_heads) {
  if (kv.block_size != 16 && kv.block_size != 32 && kv.block_size != 64) return nullptr;
  if (kv.head_dim <= 0 || kv.head_dim % 4 != 0 || kv.num_kv_heads <= 0) return nullptr;
  if (num_heads % kv.num_kv_heads != 0 || num_heads / kv.num_kv_heads > 16) return nullptr;
  const AttentionRegistry& registry = Registry();
  const AttentionInstance* best = nullptr;
  for (int i = 0; i < registry.count; ++i) {
    const AttentionInstance& instance = registry.instances[i];
    if (instance.storage != kv.storage || instance.dim < kv.head_dim) continue;
    if (best == nullptr || instance.dim < best->dim) best = &instance;
  }
  return best;
}

// --- the merge

constexpr int kMergeWarps = 4;

// One warp a sequence and head joins the partial results.
__global__ void __launch_bounds__(kMergeWarps * 32) MergeDecodeKernel(const __grid_constant__ PagedDecodeParams p) {
  const int sequence = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y) * kMergeWarps + static_cast<int>(threadIdx.x) / 32;
  if (head >= p.num_heads) return;
  const int begin = p.merge_begin[sequence], end = p.merge_begin[sequence + 1], dim = p.kv.head_dim;
  if (begin == end) return;
  SoftmaxState state;
  for (int i = begin; i < end; ++i) {
    state.max = fmaxf(state.max, p.partial_state[int64_t{i} * p.num_heads + head].x);
  }
  for (int i = begin; i < end; ++i) {
    const float2 part = p.partial_state[int64_t{i} * p.num_heads + head];
    state.sum += part.y * RescaleTo(state.max, part.x);
  }
  float logsumexp;
  const float kept = FinishSoftmax(state, p.sinks != nullptr, p.sinks != nullptr ? p.sinks[head] : 0.0f, &logsumexp);
  for (int d = lane; d < dim; d += 32) {
    float value = 0;
    for (int i = begin; i < end; ++i) {
      const int64_t from = int64_t{i} * p.num_heads + head;
      value += p.partial_out[from * dim + d] * RescaleTo(state.max, p.partial_state[from].x);
    }
    StoreElement(p.out, sequence * p.out.stride + int64_t{head} * dim + d, value * kept);
  }
  if (lane == 0 && p.logsumexp != nullptr) p.logsumexp[int64_t{sequence} * p.num_heads + head] = logsumexp;
}

// --- launchers

cudaError_t LaunchPagedPrefill(const PagedPrefillParams& params, cudaStream_t stream) {
  if (params.num_tiles == 0) return cudaSuccess;
  const AttentionInstance* instance = FindAttentionInstance(params.kv, params.num_heads);
  return instance != nullptr ? instance->prefill(params, stream) : cudaErrorInvalidValue;
}

cudaError_t LaunchPagedDecode(const PagedDecodeParams& params, cudaStream_t stream) {
  if (params.max_splits == 0 || params.sequences == 0) return cudaSuccess;
  const AttentionInstance* instance = FindAttentionInstance(params.kv, params.num_heads);
  if (instance == nullptr) return cudaErrorInvalidValue;
  const cudaError_t error = instance->decode(params, stream);
  if (error != cudaSuccess) return error;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.sequences),
                     static_cast<unsigned>((params.num_heads + kMergeWarps - 1) / kMergeWarps));
  config.block = dim3(kMergeWarps * 32);
  config.stream = stream;
  return simt::Launch(config, MergeDecodeKernel, params);
}

}  // namespace quire::cuda
