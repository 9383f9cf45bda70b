#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;

// Everything that kernels/cuda asks of the CUDA runtime but launches. runtime.cc does it on a GPU; the host twin of
// tests/simt on the emulator: a stream keeps what is put in and carries it out when somebody waits, so that what is
// read or freed too early shows. The driver is looked for at the first call, so a program that holds this starts
// without one.
//
// One thread calls everything. Errors are kInternal and stay: after a kernel has failed nothing works any more.
namespace quire::cuda {

using Stream = CUstream_st*;  // cudaStream_t

struct DeviceInfo {
  std::string name;  // "NVIDIA H200 sm_90"
  int32_t multiprocessors = 0;
  bool host_reads_memory = false;  // device memory is memory of the host (the emulator)
};

// Makes device `index` the one that all other calls mean. kUnavailable saying what is missing: the driver, a device of
// that number, or one of compute capability 8.0 and above.
absl::StatusOr<DeviceInfo> OpenDevice(int32_t index);
// What could be allocated now.
absl::StatusOr<int64_t> FreeDeviceBytes();

// Zeroed, aligned to 256, of at least one byte. kResourceExhausted naming the bytes wanted and free.
absl::StatusOr<void*> AllocateDevice(int64_t bytes);
// Memory of the host that the device reads and writes at the same address.
absl::StatusOr<void*> AllocatePinned(int64_t bytes);
// `bytes` is not used: the type is that of Buffer::ReleaseFn.
void FreeDevice(void* data, int64_t bytes);
void FreePinned(void* data, int64_t bytes);

absl::StatusOr<Stream> CreateStream();
void DestroyStream(Stream stream);
// Either side may be of the host or of the device; memory of the host stays as it is until a Synchronize has returned.
absl::Status CopyAsync(void* to, const void* from, int64_t bytes, Stream stream);
// Returns when all that was put into the stream is done.
absl::Status Synchronize(Stream stream);

// Of a cudaError_t; `what` names the call.
absl::Status DeviceStatus(int error, const char* what);

}  // namespace quire::cuda
