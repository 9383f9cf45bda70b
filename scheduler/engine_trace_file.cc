#include "scheduler/engine_trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kMaxName = 128;
constexpr char kTrace[] = "the schedule trace";
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

absl::Status CheckName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (plain && !name.empty() && name.size() <= kMaxName && name[0] != '.') return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("file: must be a file name of 1 to ", kMaxName,
                                                 " letters, digits, '.', '_' and '-' that does not begin with '.'"));
}

absl::Status Unwritable(const char* what, const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, " cannot be written: ", strerror(error)));
}

}  // namespace

absl::Status TraceFile::CheckDirectory(const std::string& directory) {
  struct stat info = {};
  int error = stat(directory.c_str(), &info) != 0 ? errno : S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
  if (error == 0 && access(directory.c_str(), W_OK | X_OK) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--schedule-trace-dir ", directory, " is no directory to write to: ", strerror(error)));
}

absl::StatusOr<std::shared_ptr<TraceFile>> TraceFile::Create(const std::string& directory, const std::string& name,
                                                             int64_t max_bytes) {
  QUIRE_RETURN_IF_ERROR(CheckName(name));
  const std::string path = absl::StrCat(directory, "/", name);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly);
  if (descriptor < 0 && errno == EEXIST)
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already, and traces overwrite nothing"));
  if (descriptor < 0) return Unwritable(kTrace, path, errno);
  return std::shared_ptr<TraceFile>(new TraceFile(descriptor, path, /*is_new=*/true, max_bytes));
}

absl::StatusOr<std::shared_ptr<TraceFile>> TraceFile::Overwrite(const std::string& path, int64_t max_bytes) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kOwnerOnly);
  if (descriptor < 0) return Unwritable("--schedule-trace", path, errno);
  // Devices and pipes keep their mode: they are not ours.
  struct stat info = {};
  if (fstat(descriptor, &info) != 0 || (S_ISREG(info.st_mode) && fchmod(descriptor, kOwnerOnly) != 0)) {
    const absl::Status status = Unwritable("--schedule-trace", path, errno);
    close(descriptor);
    return status;
  }
  return std::shared_ptr<TraceFile>(new TraceFile(descriptor, path, /*is_new=*/false, max_bytes));
}

TraceFile::TraceFile(int descriptor, std::string path, bool is_new, int64_t max_bytes)
    : descriptor_(descriptor), path_(std::move(path)), is_new_(is_new), max_bytes_(max_bytes) {}

void TraceFile::Begin() {
  pending_.reserve(kBufferBytes + kMaxTraceEndBytes);
  writing_.reserve(kBufferBytes + kMaxTraceEndBytes);
  thread_ = std::thread(&TraceFile::Run, this);
}

TraceFile::~TraceFile() {
  Close();
  Wait();
  if (is_new_ && num_appended_ == 0) unlink(path_.c_str());
  close(descriptor_);
}

TraceBytes::Answer TraceFile::Append(absl::string_view bytes, bool last) {
  std::lock_guard lock(mutex_);
  const auto size = static_cast<int64_t>(bytes.size());
  if (!problem_.empty() || (!last && num_appended_ + size > max_bytes_ - kMaxTraceEndBytes)) {
    return Answer::kFull;
  }
  if (!last && pending_.size() + bytes.size() > kBufferBytes) return Answer::kTooSlow;
  if (num_appended_ == 0) Begin();
  pending_.append(bytes.data(), bytes.size());
  num_appended_ += size;
  changed_.notify_one();
  return Answer::kTaken;
}

void TraceFile::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

void TraceFile::Wait() {
  if (thread_.joinable()) thread_.join();
}

bool TraceFile::written() const {
  std::lock_guard lock(mutex_);
  return closed_ && (ended_ || num_appended_ == 0);
}

int64_t TraceFile::num_bytes() const {
  std::lock_guard lock(mutex_);
  return problem_.empty() ? num_appended_ : num_written_;
}

std::string TraceFile::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

void TraceFile::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !pending_.empty(); });
    if (pending_.empty()) break;
    writing_.swap(pending_);
    lock.unlock();
    const std::string problem = WriteAll();
    writing_.clear();
    lock.lock();
    if (problem.empty()) continue;
    problem_ = problem;
    pending_.clear();
  }
  ended_ = true;
}

std::string TraceFile::WriteAll() {
  for (size_t done = 0; done < writing_.size();) {
    const ssize_t n = write(descriptor_, writing_.data() + done, writing_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::string(Unwritable(kTrace, path_, n < 0 ? errno : ENOSPC).message());
    done += static_cast<size_t>(n);
    std::lock_guard lock(mutex_);
    num_written_ += n;
  }
  return "";
}

}  // namespace quire
