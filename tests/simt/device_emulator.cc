// The device of the emulator builds: plain, asan, race, and ptx (the plain build run with QUIRE_SIMT_PTX set to the
// PTX files of its kernels, separated by colons).
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <unordered_map>

#include "tests/simt/device.h"
#include "tests/simt/emulator_core.h"
#include "tests/simt/ptx_run.h"

namespace quire::simt {
namespace {

// ASan's redzones must begin where the memory ends; elsewhere guard values lie around it.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGuardBytes = 0;
#else
constexpr size_t kGuardBytes = 256;
#endif

std::unordered_map<void*, size_t> g_sizes;

// Reads the files at the first call.
bool ReadPtxOfEnvironment() {
  static const bool has_ptx = [] {
    const char* paths = std::getenv("QUIRE_SIMT_PTX");
    if (paths == nullptr) return false;
    std::stringstream stream(paths);
    for (std::string path; std::getline(stream, path, ':');) ReadPtx(path);
    return true;
  }();
  return has_ptx;
}

}  // namespace

std::string WhyNoDevice() {
  ReadPtxOfEnvironment();
  return "";
}

std::string BuildName() {
#if defined(__SANITIZE_ADDRESS__)
  return "asan";
#elif defined(SIMT_RACE)
  return "race";
#else
  return ReadPtxOfEnvironment() ? "ptx" : "plain";
#endif
}

void* AllocateDevice(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes + 2 * kGuardBytes) != 0) throw std::bad_alloc();
  std::memset(memory, 0xff, bytes + 2 * kGuardBytes);
  void* data = static_cast<char*>(memory) + kGuardBytes;
  g_sizes[data] = bytes;
  return data;
}

void FreeDevice(void* data) {
  auto* begin = static_cast<unsigned char*>(data);
  for (size_t i = 0; i < kGuardBytes; ++i) {
    const unsigned char before = *(begin - 1 - i), after = begin[g_sizes[data] + i];
    if (before == 0xff && after == 0xff) continue;
    ReportViolation("guard", "device memory was written %zu bytes %s an array of %zu bytes", i + 1,
                    before != 0xff ? "before" : "behind", g_sizes[data]);
    break;
  }
  g_sizes.erase(data);
  std::free(begin - kGuardBytes);
}

void CopyToDevice(void* device, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void CopyFromDevice(void* host, const void* device, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace quire::simt
