// The device of the _gpu builds.
#include <cuda_runtime.h>

#include <cstdarg>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "tests/simt/device.h"

namespace quire::simt {
namespace {

constexpr size_t kGuardBytes = 256;

Options g_options;
Stats g_stats;
std::vector<Violation> g_violations;
std::unordered_map<void*, size_t> g_sizes;

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) ReportViolation("cuda", "%s: %s", what, cudaGetErrorString(error));
}

}  // namespace

Options& options() { return g_options; }
Stats& stats() { return g_stats; }

void ReportViolation(const char* kind, const char* format, ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  if (g_violations.size() < 32) g_violations.push_back({kind, text});
}

std::vector<Violation> TakeViolations() { return std::exchange(g_violations, {}); }

std::string WhyNoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(error);
  return count > 0 ? "" : "no CUDA device";
}

std::string BuildName() { return "gpu"; }

void* AllocateDevice(size_t bytes) {
  char* memory = nullptr;
  Check(cudaMalloc(&memory, bytes + 2 * kGuardBytes), "cudaMalloc");
  if (memory == nullptr) return nullptr;
  Check(cudaMemset(memory, 0xff, bytes + 2 * kGuardBytes), "cudaMemset");
  g_sizes[memory + kGuardBytes] = bytes;
  return memory + kGuardBytes;
}

void FreeDevice(void* data) {
  if (data == nullptr) return;
  auto* begin = static_cast<unsigned char*>(data);
  unsigned char guards[2 * kGuardBytes];
  CopyFromDevice(guards, begin - kGuardBytes, kGuardBytes);
  CopyFromDevice(guards + kGuardBytes, begin + g_sizes[data], kGuardBytes);
  for (unsigned char guard : guards) {
    if (guard == 0xff) continue;
    ReportViolation("guard", "device memory was written beside an array of %zu bytes", g_sizes[data]);
    break;
  }
  g_sizes.erase(data);
  Check(cudaFree(begin - kGuardBytes), "cudaFree");
}

void CopyToDevice(void* device, const void* host, size_t bytes) {
  Check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void CopyFromDevice(void* host, const void* device, size_t bytes) {
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  Check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

}  // namespace quire::simt
