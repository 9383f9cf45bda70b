#pragma once

// The one header that device code starts from. nvcc: CUDA itself, and a few macros. Any other compiler: the emulator of
// tests/simt, which runs kernels on the CPU; the build names its header in QUIRE_SIMT_EMULATOR, so that nothing here
// depends on tests/.
//
// Rules for device code, so that it builds in both worlds:
//   - dynamic shared memory by SIMT_DYNAMIC_SHARED(name), static by SIMT_SHARED(type, name, [n]);
//   - launches by simt::Launch(config, kernel, arguments...);
//   - inline assembly only in ptx*.cuh; a wrapper that waits or exchanges takes SIMT_SITE_ARG last;
//   - kernels have external linkage: the PTX run finds them by name;
//   - no __activemask, no reliance on lockstep, no __CUDA_ARCH__ outside ptx*.cuh;
//   - what is stored or loaded as a class goes through integers (tensor.cuh): the race detector sees no other way;
//   - parameters come in one `const __grid_constant__` struct.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#if defined(__CUDACC__)

#define SIMT_EMULATED 0
#define SIMT_SITE_ARG
#define SIMT_SITE_PASS
#define SIMT_DYNAMIC_SHARED(name)                                        \
  extern __shared__ __align__(128) unsigned char simt_dynamic_shared_[]; \
  unsigned char* const name = simt_dynamic_shared_
#define SIMT_SHARED(type, name, ...) __shared__ type name __VA_ARGS__

namespace quire::simt {

struct LaunchConfig {
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  size_t shared_bytes = 0;  // dynamic
  cudaStream_t stream = nullptr;
};

// Launches a kernel; does not wait. Raises the kernel's limit of shared memory where needed.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(const LaunchConfig& config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (config.shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(config.shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<config.grid, config.block, config.shared_bytes, config.stream>>>(Parameters(arguments)...);
  return cudaGetLastError();
}

}  // namespace quire::simt

#else

#define SIMT_EMULATED 1
#include QUIRE_SIMT_EMULATOR

#endif
