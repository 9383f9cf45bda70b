#pragma once

#include "kernels/cuda/attention_instance.cuh"
#include "kernels/cuda/paged_decode_kernel.cuh"
#include "kernels/cuda/paged_prefill_kernel.cuh"

// For instantiations/*.cu.
namespace quire::cuda {

template <int kDim, KvStorage kStorage>
AttentionInstance MakeAttentionInstance() {
  return {kDim, kStorage, &LaunchPagedDecodeKernel<kDim, kStorage>, &LaunchPagedPrefillKernel<kDim, kStorage>};
}

}  // namespace quire::cuda
