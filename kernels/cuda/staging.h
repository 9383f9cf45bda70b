#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

// Small arrays of the host on their way to the device: a copy in pinned memory, then one to device memory, in order
// with what else is in the stream. One thread.
class Staging {
 public:
  explicit Staging(Stream stream) : stream_(stream) {}

  // The device's copy, valid until Reset. `values` may change at once.
  template <typename T>
  absl::StatusOr<const T*> Upload(absl::Span<const T> values) {
    QUIRE_ASSIGN_OR_RETURN(const void* copy, UploadBytes(values.data(), BytesOf(values)));
    return static_cast<const T*>(copy);
  }
  // The same; values that stay as they are until Reset or Forget are copied at the first call only.
  template <typename T>
  absl::StatusOr<const T*> UploadOnce(absl::Span<const T> values) {
    for (const Known& known : known_) {
      if (known.data == values.data() && known.bytes == BytesOf(values)) return static_cast<const T*>(known.copy);
    }
    QUIRE_ASSIGN_OR_RETURN(const T* copy, Upload(values));
    known_.push_back({values.data(), BytesOf(values), copy});
    return copy;
  }
  void Forget() { known_.clear(); }
  // REQUIRES: nothing in the stream uses the copies any more.
  void Reset();

 private:
  struct Chunk {
    Buffer pinned, device;
    int64_t used = 0;
  };
  struct Known {
    const void* data = nullptr;
    int64_t bytes = 0;
    const void* copy = nullptr;
  };
  template <typename T>
  static int64_t BytesOf(absl::Span<const T> values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
  }
  absl::StatusOr<const void*> UploadBytes(const void* data, int64_t bytes);

  Stream stream_;
  std::vector<Chunk> chunks_;  // each at least twice the one before; the last one is filled
  std::vector<Known> known_;
};

}  // namespace quire::cuda
