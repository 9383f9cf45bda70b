#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace quire {

// Memory for packed weights. A layer of a small model is less than a huge page, so weights share large regions that
// are in huge pages as a whole; they lie there in the order in which they were packed. Everything is released with the
// arena, nothing before: a backend packs a model once. Not thread-safe.
class WeightArena {
 public:
  // Zeroed memory of `bytes` >= 0, aligned to 64 bytes; kReadAheadBytes behind it can be read, too. kResourceExhausted
  // naming the bytes wanted.
  absl::StatusOr<std::byte*> Allocate(int64_t bytes);

 private:
  std::vector<Buffer> regions_;
  std::byte* next_ = nullptr;  // the rest of the region that is being filled
  int64_t left_ = 0;
};

}  // namespace quire
