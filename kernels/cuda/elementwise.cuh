#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_tensor.h"

// The elementwise kernels: parameters and launchers. Rows and columns as in kernels/ops.h; any counts, none negative; a
// launch of nothing does nothing. Launchers do not wait and answer what the launch answers. Vectors of 16 bytes are
// used where addresses allow; other addresses and column counts work, more slowly.
namespace quire::cuda {

// residual += delta (if delta.data is not null), then out = residual / sqrt(mean(residual^2) + epsilon) * weight. The
// mean is of the values as stored. out does not alias residual.
struct AddRmsNormParams {
  DeviceTensor residual = {}, delta = {}, out = {};
  const float* weight = nullptr;  // [cols]
  float epsilon = 0;
  int32_t rows = 0, cols = 0;
};
cudaError_t LaunchAddRmsNorm(const AddRmsNormParams& params, cudaStream_t stream);

// out = f(gate) * up; gate_up: [rows, 2 cols], gate in the first cols columns. kGelu is the tanh form.
enum class Activation : int32_t { kSilu, kGelu };
struct GatedActivationParams {
  DeviceTensor gate_up = {}, out = {};
  Activation activation = Activation::kSilu;
  int32_t rows = 0, cols = 0;
};
cudaError_t LaunchGatedActivation(const GatedActivationParams& params, cudaStream_t stream);

// out[i, :] = from[index[i], :]: embedding look-up, and the rows that need logits. Types may differ.
struct GatherRowsParams {
  DeviceTensor from = {}, out = {};
  const int32_t* index = nullptr;  // device, [rows], rows of `from`
  int32_t rows = 0, cols = 0;
};
cudaError_t LaunchGatherRows(const GatherRowsParams& params, cudaStream_t stream);

// Copies whole KV blocks: block copies[i].dst becomes block copies[i].src. Ids from num_blocks on name blocks of
// `host`, memory of the host that the device can address (pinned). No destination may be another copy's source or
// destination: IndependentCopies (copy_batches.h) splits a list so.
struct BlockCopyPair {
  int32_t src = 0, dst = 0;
};
struct CopyBlocksParams {
  unsigned char* cache = nullptr;  // a multiple of 16, as the sizes are
  unsigned char* host = nullptr;
  int64_t num_blocks = 0;
  int64_t block_bytes = 0, host_stride = 0;
  const BlockCopyPair* copies = nullptr;  // device, [count]
  int32_t count = 0;
};
cudaError_t LaunchCopyBlocks(const CopyBlocksParams& params, cudaStream_t stream);

}  // namespace quire::cuda
