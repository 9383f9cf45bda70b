// The host twin of kernels/cuda/runtime.h: memory and streams of the emulator.
#include "tests/simt/runtime_emulator.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/runtime.h"
#include "tests/simt/device.h"
#include "tests/simt/stream.h"

namespace quire::simt {

EmulatedDevice& emulated_device() {
  static EmulatedDevice device;
  return device;
}

namespace {

bool Fails() {
  static const char* const path = std::getenv("QUIRE_SIMT_FAILURE_FILE");
  return emulated_device().fails || (path != nullptr && access(path, F_OK) == 0);
}

}  // namespace
}  // namespace quire::simt

namespace quire::cuda {

absl::Status DeviceStatus(int error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  std::string text = absl::StrCat("cuda: ", what, ": error ", error);
  for (const simt::Violation& violation : simt::TakeViolations()) {
    absl::StrAppend(&text, " [", violation.kind, "] ", violation.text);
  }
  return absl::InternalError(text);
}

absl::StatusOr<DeviceInfo> OpenDevice(int32_t index) {
  if (index != 0) return absl::UnavailableError(absl::StrCat("device cuda:", index, ": the driver has 1 devices"));
  DeviceInfo info;
  info.name = "emulator";
  info.multiprocessors = 4;
  info.host_reads_memory = true;
  return info;
}

absl::StatusOr<int64_t> FreeDeviceBytes() {
  return simt::emulated_device().limit_bytes - simt::emulated_device().used_bytes;
}

absl::StatusOr<void*> AllocateDevice(int64_t bytes) {
  simt::EmulatedDevice& device = simt::emulated_device();
  if (device.used_bytes + bytes > device.limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("cuda: ", bytes, " bytes of device memory are needed, ",
                                                     device.limit_bytes - device.used_bytes, " are free"));
  }
  device.used_bytes += bytes;
  void* data = simt::AllocateDevice(static_cast<size_t>(bytes));
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

void FreeDevice(void* data, int64_t bytes) {
  simt::emulated_device().used_bytes -= bytes;
  simt::FreeDevice(data);
}

absl::StatusOr<void*> AllocatePinned(int64_t bytes) {
  void* data = simt::AllocateDevice(static_cast<size_t>(bytes));
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

void FreePinned(void* data, int64_t) { simt::FreeDevice(data); }

absl::StatusOr<Stream> CreateStream() { return (new simt::Stream)->handle(); }
void DestroyStream(Stream stream) { delete &simt::Stream::Of(stream); }

absl::Status CopyAsync(void* to, const void* from, int64_t bytes, Stream stream) {
  simt::Stream::Of(stream).Enqueue([=] {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return cudaSuccess;
  });
  return absl::OkStatus();
}

absl::Status Synchronize(Stream stream) {
  if (simt::Fails()) return DeviceStatus(cudaErrorIllegalAddress, "Synchronize");
  return DeviceStatus(simt::Stream::Of(stream).Synchronize(), "Synchronize");
}

}  // namespace quire::cuda
