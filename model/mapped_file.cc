#include "model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

absl::Status SystemError(const std::string& path, const char* call) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", call, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EIO:
      return absl::InternalError(message);
    default:  // a name too long, a link to itself, no permission: the path is at fault
      return absl::InvalidArgumentError(message);
  }
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return absl::InvalidArgumentError("a path contains a NUL byte");
  // Non-blocking, so that a FIFO cannot hold us up before we see that it is none of ours.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, "open");
  struct stat info;
  if (fstat(fd, &info) != 0) {
    absl::Status status = SystemError(path, "fstat");
    close(fd);
    return status;
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  MappedFile file;
  if (info.st_size > 0) {
    void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      absl::Status status = SystemError(path, "mmap");
      close(fd);
      return status;
    }
    file.data_ = static_cast<const std::byte*>(data);
    file.size_ = static_cast<size_t>(info.st_size);
  }
  close(fd);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (size_ > 0) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace quire
