#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_tensor.h"
#include "kernels/cuda/device_weight.h"

// Linear layers over packed weights on mma.sync, without any library. A layer is two launches: its inputs become f16,
// then rows and weights meet.
//
// The bits of an output depend on its row, its weights and nothing else: not on the number of rows nor on which of the
// two kernels ran. K is cut into four parts of whole blocks; in each the products are added by the tensor core in
// ascending order, 16 at a time, from zero; then the parts are added in order.
namespace quire::cuda {

// Rows in f16, as LaunchLinear takes them: [rows / 16, rounded up][blocks][16][32], inputs past cols zeros. Each row is
// multiplied by a power of two that brings its largest magnitude to 2^14 .. 2^15; what undoes it goes to scales[row].
// So no row overflows, and only what is 2^-28 of a row's largest value loses digits. Infinite values stay, as do NaNs.
struct PrepareRowsParams {
  DeviceTensor x = {};
  unsigned char* out = nullptr;  // a multiple of 16, PreparedBytes(rows, blocks)
  float* scales = nullptr;       // [rows]
  int32_t rows = 0, cols = 0, blocks = 0;
};
cudaError_t LaunchPrepareRows(const PrepareRowsParams& params, cudaStream_t stream);
inline int64_t PreparedBytes(int64_t rows, int64_t blocks) { return (rows + 15) / 16 * 16 * blocks * 64; }

// out[:, first_column + n] = x * weight^T (+ bias), or is added to it.
struct LinearParams {
  const unsigned char* x = nullptr;  // prepared
  const float* x_scales = nullptr;
  DeviceWeight weight = {};
  const float* bias = nullptr;  // [weight.rows] or null
  DeviceTensor out = {};
  int32_t rows = 0;
  int32_t first_column = 0;
  bool add = false;
};
cudaError_t LaunchLinear(const LinearParams& params, cudaStream_t stream);

// out[t, :] = row ids[t] - first_id of the weight, for those that it holds; other rows stay.
struct EmbeddingParams {
  const int32_t* ids = nullptr;  // device, [tokens]
  DeviceWeight table = {};
  int32_t first_id = 0;
  DeviceTensor out = {};
  int32_t tokens = 0, cols = 0;
};
cudaError_t LaunchEmbedding(const EmbeddingParams& params, cudaStream_t stream);

}  // namespace quire::cuda
