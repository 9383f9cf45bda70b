#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "kernels/ops.h"

namespace quire {

// Memory of a backend, released on destruction. Movable. Base address aligned to 2 MiB when the size is at least that,
// else to 64 bytes; zeroed.
class Buffer {
 public:
  Buffer() = default;
  // `release(context, data, bytes)` frees the memory.
  using ReleaseFn = void (*)(void* data, int64_t bytes);
  Buffer(void* data, int64_t bytes, ReleaseFn release) : data_(data), bytes_(bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = other.data_, bytes_ = other.bytes_, release_ = other.release_;
      other.data_ = nullptr, other.bytes_ = 0, other.release_ = nullptr;
    }
    return *this;
  }
  ~Buffer() { Reset(); }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void Reset() {
    if (data_ != nullptr) release_(data_, bytes_);
    data_ = nullptr;
  }
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  ReleaseFn release_ = nullptr;
};

// One device with its memory and its operations: the only seam between the model and the hardware.
//
// Thread rule: one thread (the engine thread, or a test) calls everything; a backend's own workers are its own
// business.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceKind kind() const = 0;
  // For the start-up log and GetModelInfo: "cpu avx512 2 threads".
  virtual std::string Describe() const = 0;

  // Zeroed memory of at least `bytes` >= 0 bytes. kResourceExhausted naming the bytes wanted.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes) = 0;

  // Zeroed memory of the host for blocks that leave the device (HostKvView): pinned where that makes copies faster.
  virtual absl::StatusOr<Buffer> AllocateHost(int64_t bytes) { return Allocate(bytes); }

  // Copies into memory from Allocate; done when it returns.
  virtual absl::Status CopyToDevice(void* to, const void* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  // What Allocate could still give where that is not memory of the host; nullopt where it is.
  virtual absl::StatusOr<std::optional<int64_t>> FreeBytes() { return std::nullopt; }
  // True if the host reads and writes memory from Allocate as its own.
  virtual bool host_reads_memory() const { return true; }

  // Not OK once the device has failed for good: no op will succeed any more.
  virtual absl::Status broken() const { return absl::OkStatus(); }

  // The element type of KV if none is asked for, for a model whose numbers are `model` (ModelConfig::dtype): on
  // reference f32; on cpu f32 for f32, as 16 bits of K and V would be the largest error of such a model, else f16; on
  // cuda bf16 for bf16, else f16.
  virtual DType default_kv_dtype(DType model) const = 0;
  // True if the KV cache may be stored as `dtype`.
  virtual bool supports_kv_dtype(DType dtype) const = 0;

  virtual Ops& ops() = 0;
};

}  // namespace quire
