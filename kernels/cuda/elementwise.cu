#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor.cuh"

namespace quire::cuda {

constexpr int kRowThreads = 256;

// Values of a row from `column` on that one step may take.
__device__ __forceinline__ int VectorCount(int cols, int column) {
  const int left = cols - column;
  return left < kVector ? left : kVector;
}

// --- one block a row

__global__ void __launch_bounds__(kRowThreads) AddRmsNormKernel(const __grid_constant__ AddRmsNormParams p) {
  const int64_t row = blockIdx.x;
  const int64_t residual = row * p.residual.stride, delta = row * p.delta.stride, out = row * p.out.stride;
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.cols; c += kRowThreads * kVector) {
    const int count = VectorCount(p.cols, c);
    float x[kVector];
    LoadVector(p.residual, residual + c, count, x);
    if (p.delta.data != nullptr) {
      float d[kVector];
      LoadVector(p.delta, delta + c, count, d);
#pragma unroll
      for (int i = 0; i < kVector; ++i) x[i] += d[i];
      StoreVector(p.residual, residual + c, count, x);
      LoadVector(p.residual, residual + c, count, x);  // as stored
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) squares += x[i] * x[i];
  }
  const float mean = BlockSum(squares) / static_cast<float>(p.cols);
  const float scale = 1.0f / sqrtf(mean + p.epsilon);
  // Each thread takes up the columns it has written.
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.cols; c += kRowThreads * kVector) {
    const int count = VectorCount(p.cols, c);
    const DeviceTensor weight_row{const_cast<float*>(p.weight), DType::kF32, 0};
    float x[kVector], weight[kVector];
    LoadVector(p.residual, residual + c, count, x);
    LoadVector(weight_row, c, count, weight);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = x[i] * scale * weight[i];
    StoreVector(p.out, out + c, count, x);
  }
}

__global__ void __launch_bounds__(kRowThreads) GatherRowsKernel(const __grid_constant__ GatherRowsParams p) {
  const int64_t from = static_cast<int64_t>(p.index[blockIdx.x]) * p.from.stride;
  const int64_t out = static_cast<int64_t>(blockIdx.x) * p.out.stride;
  for (int c = static_cast<int>(threadIdx.x) * kVector; c < p.cols; c += kRowThreads * kVector) {
    const int count = VectorCount(p.cols, c);
    float x[kVector];
    LoadVector(p.from, from + c, count, x);
    StoreVector(p.out, out + c, count, x);
  }
}

// --- a grid over columns and rows

__device__ __forceinline__ float Activate(Activation activation, float x) {
  constexpr float kLog2E = 1.44269504f;
  if (activation == Activation::kSilu) return x / (1.0f + ptx::Exp2(-x * kLog2E));
  // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
  const float u = 0.797884561f * (x + 0.044715f * x * x * x);
  return x / (1.0f + ptx::Exp2(-2.0f * kLog2E * u));
}

__global__ void __launch_bounds__(kRowThreads) GatedActivationKernel(const __grid_constant__ GatedActivationParams p) {
  const int c = static_cast<int>(blockIdx.x * kRowThreads + threadIdx.x) * kVector;
  if (c >= p.cols) return;
  const int64_t row = blockIdx.y, gate_row = row * p.gate_up.stride;
  const int count = VectorCount(p.cols, c);
  float gate[kVector], up[kVector];
  LoadVector(p.gate_up, gate_row + c, count, gate);
  LoadVector(p.gate_up, gate_row + p.cols + c, count, up);
#pragma unroll
  for (int i = 0; i < kVector; ++i) gate[i] = Activate(p.activation, gate[i]) * up[i];
  StoreVector(p.out, row * p.out.stride + c, count, gate);
}

// --- whole blocks, 16 bytes a thread and step

__device__ __forceinline__ unsigned char* BlockAddress(const CopyBlocksParams& p, int32_t block) {
  if (block < p.num_blocks) return p.cache + block * p.block_bytes;
  return p.host + (block - p.num_blocks) * p.host_stride;
}

__global__ void __launch_bounds__(kRowThreads) CopyBlocksKernel(const __grid_constant__ CopyBlocksParams p) {
  const BlockCopyPair copy = p.copies[blockIdx.y];
  const auto* from = reinterpret_cast<const uint4*>(BlockAddress(p, copy.src));
  auto* to = reinterpret_cast<uint4*>(BlockAddress(p, copy.dst));
  const int64_t pieces = p.block_bytes / 16, step = static_cast<int64_t>(gridDim.x) * kRowThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x; i < pieces; i += step) to[i] = from[i];
}

// --- launchers

constexpr int32_t kMaxGridY = 65535;

cudaError_t LaunchAddRmsNorm(const AddRmsNormParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.cols == 0) return cudaSuccess;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.rows));
  config.block = dim3(kRowThreads);
  config.stream = stream;
  return simt::Launch(config, AddRmsNormKernel, params);
}

cudaError_t LaunchGatherRows(const GatherRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.cols == 0) return cudaSuccess;
  simt::LaunchConfig config;
  config.grid = dim3(static_cast<unsigned>(params.rows));
  config.block = dim3(kRowThreads);
  config.stream = stream;
  return simt::Launch(config, GatherRowsKernel, params);
}

cudaError_t LaunchGatedActivation(const GatedActivationParams& params, cudaStream_t stream) {
  const int per_block = kRowThreads * kVector;
  for (int32_t first = 0; first < params.rows && params.cols > 0; first += kMaxGridY) {
    GatedActivationParams part = params;
    part.rows = params.rows - first < kMaxGridY ? params.rows - first : kMaxGridY;
    part.gate_up.data = AddressOf(params.gate_up, first * params.gate_up.stride);
    part.out.data = AddressOf(params.out, first * params.out.stride);
    simt::LaunchConfig config;
    config.grid =
        dim3(static_cast<unsigned>((params.cols + per_block - 1) / per_block), static_cast<unsigned>(part.rows));
    config.block = dim3(kRowThreads);
    config.stream = stream;
    if (const cudaError_t error = simt::Launch(config, GatedActivationKernel, part); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchCopyBlocks(const CopyBlocksParams& params, cudaStream_t stream) {
  constexpr int64_t kBytesPerBlock = kRowThreads * 16 * 4;  // a thread copies four pieces
  const int64_t per_copy = (params.block_bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  for (int32_t first = 0; first < params.count && params.block_bytes > 0; first += kMaxGridY) {
    CopyBlocksParams part = params;
    part.copies = params.copies + first;
    part.count = params.count - first < kMaxGridY ? params.count - first : kMaxGridY;
    simt::LaunchConfig config;
    config.grid = dim3(static_cast<unsigned>(per_copy), static_cast<unsigned>(part.count));
    config.block = dim3(kRowThreads);
    config.stream = stream;
    if (const cudaError_t error = simt::Launch(config, CopyBlocksKernel, part); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace quire::cuda
