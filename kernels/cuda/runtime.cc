#include "kernels/cuda/runtime.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

// The runtime library is linked in; it opens the driver (libcuda.so.1) when it is first called.
namespace quire::cuda {

absl::Status DeviceStatus(int error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("cuda: %s: %s", what, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

absl::StatusOr<DeviceInfo> OpenDevice(int32_t index) {
  int count = 0, driver = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  cudaDriverGetVersion(&driver);
  if (counted == cudaErrorInsufficientDriver && driver == 0) {
    return absl::UnavailableError("device cuda: no NVIDIA driver was found (libcuda.so.1)");
  }
  if (counted != cudaSuccess && counted != cudaErrorNoDevice) {
    return absl::UnavailableError(absl::StrFormat("device cuda: %s (driver for CUDA %d.%d)",
                                                  cudaGetErrorString(counted), driver / 1000, driver % 1000 / 10));
  }
  if (index < 0 || index >= count) {
    return absl::UnavailableError(absl::StrFormat("device cuda:%d: the driver has %d devices", index, count));
  }
  QUIRE_RETURN_IF_ERROR(DeviceStatus(cudaSetDevice(index), "cudaSetDevice"));
  cudaDeviceProp properties;
  QUIRE_RETURN_IF_ERROR(DeviceStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  if (properties.major < 8) {
    return absl::UnavailableError(absl::StrFormat("device cuda:%d: %s has compute capability %d.%d, needed is 8.0",
                                                  index, properties.name, properties.major, properties.minor));
  }
  DeviceInfo info;
  info.name = absl::StrFormat("%s sm_%d%d", properties.name, properties.major, properties.minor);
  info.multiprocessors = properties.multiProcessorCount;
  return info;
}

absl::StatusOr<int64_t> FreeDeviceBytes() {
  size_t free = 0, total = 0;
  QUIRE_RETURN_IF_ERROR(DeviceStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return static_cast<int64_t>(free);
}

absl::StatusOr<void*> AllocateDevice(int64_t bytes) {
  void* data = nullptr;
  bytes = std::max<int64_t>(bytes, 1);
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // an allocation that fails breaks nothing
    QUIRE_ASSIGN_OR_RETURN(const int64_t free, FreeDeviceBytes());
    return absl::ResourceExhaustedError(
        absl::StrFormat("cuda: %d bytes of device memory are needed, %d are free", bytes, free));
  }
  QUIRE_RETURN_IF_ERROR(DeviceStatus(error, "cudaMalloc"));
  QUIRE_RETURN_IF_ERROR(DeviceStatus(cudaMemset(data, 0, static_cast<size_t>(bytes)), "cudaMemset"));
  QUIRE_RETURN_IF_ERROR(DeviceStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
  return data;
}

absl::StatusOr<void*> AllocatePinned(int64_t bytes) {
  void* data = nullptr;
  bytes = std::max<int64_t>(bytes, 1);
  const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return absl::ResourceExhaustedError(absl::StrFormat("cuda: no %d bytes of pinned host memory", bytes));
  }
  QUIRE_RETURN_IF_ERROR(DeviceStatus(error, "cudaHostAlloc"));
  std::fill_n(static_cast<unsigned char*>(data), bytes, static_cast<unsigned char>(0));
  return data;
}

void FreeDevice(void* data, int64_t) { cudaFree(data); }
void FreePinned(void* data, int64_t) { cudaFreeHost(data); }

absl::StatusOr<Stream> CreateStream() {
  cudaStream_t stream = nullptr;
  QUIRE_RETURN_IF_ERROR(
      DeviceStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  return stream;
}

void DestroyStream(Stream stream) { cudaStreamDestroy(stream); }

absl::Status CopyAsync(void* to, const void* from, int64_t bytes, Stream stream) {
  return DeviceStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
                      "cudaMemcpyAsync");
}

absl::Status Synchronize(Stream stream) { return DeviceStatus(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

}  // namespace quire::cuda
