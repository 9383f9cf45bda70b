#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace quire {

// A regular file mapped read-only. Movable; unmapped on destruction.
class MappedFile {
 public:
  // kNotFound if there is no such file; kInvalidArgument if it is not a regular file or its path cannot be opened;
  // kInternal if the system lacks memory or descriptors or cannot read; each naming the path. An empty file gives an
  // empty span.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace quire
