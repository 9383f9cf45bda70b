#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The machine a kernel test runs on: the emulator, the PTX interpreter, or a GPU (device_gpu.cu). Test sources include
// this and the kernels' launch headers, no device code, and are compiled once for all builds. One thread calls
// everything.
namespace quire::simt {

enum class Order { kForward, kReverse, kRandom };

struct Options {
  Order lanes = Order::kForward;
  Order blocks = Order::kForward;
  uint64_t seed = 1;
  bool strict_sites = true;  // lanes that meet in a barrier or collective come from one place in the source
};
Options& options();

// What happened since the last ResetStats. Zeros on a GPU.
struct Stats {
  uint64_t lanes = 0, blocks = 0, switches = 0, barriers = 0, collectives = 0, mma = 0, async_copies = 0;
  uint64_t ldmatrix = 0, ldmatrix_ways = 0;  // 8x8 matrices, and the bank conflicts they met: equal if there were none
};
Stats& stats();

// A rule that a kernel broke: kind such as "race", "deadlock", "divergent-barrier", and a text that names source lines.
struct Violation {
  std::string kind, text;
};
void ReportViolation(const char* kind, const char* format, ...) __attribute__((format(printf, 2, 3), cold));
// Those since the last call; forgets them. At most 32 are kept.
std::vector<Violation> TakeViolations();

// Why tests cannot run here ("no CUDA device: ..."); empty if they can.
std::string WhyNoDevice();
// "plain", "asan", "race", "ptx" or "gpu".
std::string BuildName();

// Memory of the device: `bytes` exactly, aligned to 256, filled with NaN bytes (0xff). Guard values lie on either side
// (redzones in the ASan build); FreeDevice reports one that changed as "guard".
void* AllocateDevice(size_t bytes);
void FreeDevice(void* data);
void CopyToDevice(void* device, const void* host, size_t bytes);
// Waits for the kernels before.
void CopyFromDevice(void* host, const void* device, size_t bytes);

// An array of T in device memory.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size), data_(static_cast<T*>(AllocateDevice(size * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { Upload(values); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { FreeDevice(data_); }

  T* data() const { return data_; }
  size_t size() const { return size_; }
  // REQUIRES: values.size() == size().
  void Upload(const std::vector<T>& values) { CopyToDevice(data_, values.data(), size_ * sizeof(T)); }
  std::vector<T> Download() const {
    std::vector<T> values(size_);
    CopyFromDevice(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  size_t size_;
  T* data_;
};

}  // namespace quire::simt
