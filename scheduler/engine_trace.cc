#include "scheduler/engine_trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

constexpr size_t kBufferBytes = 8 << 20;

}  // namespace

TokenPermutation DrawTokenPermutation(int32_t vocab_size) {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  const int bits = std::bit_width(static_cast<uint32_t>(std::max(1, vocab_size) - 1));
  return TokenPermutation({word(), word()}, std::clamp(bits, TokenPermutation::kMinBits, TokenPermutation::kMaxBits));
}

// The file with the thread that writes it.
class TraceFile : public TraceBytes {
 public:
  TraceFile(int descriptor, int64_t max_bytes) : descriptor_(descriptor), max_bytes_(max_bytes) {
    pending_.reserve(kBufferBytes + kMaxTraceEndBytes);
    writing_.reserve(kBufferBytes + kMaxTraceEndBytes);
    thread_ = std::thread(&TraceFile::Run, this);
  }
  ~TraceFile() override {
    Close();
    close(descriptor_);
  }

  Answer Append(absl::string_view bytes, bool last) override {
    std::lock_guard lock(mutex_);
    const auto size = static_cast<int64_t>(bytes.size());
    if (failed_ || (!last && num_bytes_ + size > max_bytes_ - kMaxTraceEndBytes)) return Answer::kFull;
    if (!last && pending_.size() + bytes.size() > kBufferBytes) return Answer::kTooSlow;
    pending_.append(bytes.data(), bytes.size());
    num_bytes_ += size;
    changed_.notify_one();
    return Answer::kTaken;
  }

  // Returns when everything is written, or cannot be.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !pending_.empty(); });
      if (pending_.empty()) return;
      writing_.swap(pending_);
      lock.unlock();
      const bool written = WriteAll();
      writing_.clear();
      lock.lock();
      failed_ |= !written;
    }
  }

  bool WriteAll() const {
    for (size_t done = 0; done < writing_.size();) {
      const ssize_t n = write(descriptor_, writing_.data() + done, writing_.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }

  const int descriptor_;
  const int64_t max_bytes_;
  std::string writing_;  // of the thread

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::string pending_;
  int64_t num_bytes_ = 0;
  bool closed_ = false, failed_ = false;

  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<EngineTrace>> EngineTrace::Start(const std::string& path, int64_t max_bytes,
                                                                const TraceHeader& header, BlockManager* blocks,
                                                                Scheduler* scheduler) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor < 0 || fchmod(descriptor, S_IRUSR | S_IWUSR) != 0) {
    const std::string reason = std::strerror(errno);
    if (descriptor >= 0) close(descriptor);
    return absl::UnavailableError(absl::StrCat("--schedule-trace ", path, " cannot be written: ", reason));
  }
  auto file = std::make_unique<TraceFile>(descriptor, max_bytes);
  std::unique_ptr<EngineTrace> trace(new EngineTrace(std::move(file), header, blocks, scheduler));
  if (!trace->writer_.status().ok()) return absl::FailedPreconditionError(trace->writer_.status().message());
  return trace;
}

EngineTrace::EngineTrace(std::unique_ptr<TraceFile> file, const TraceHeader& header, BlockManager* blocks,
                         Scheduler* scheduler)
    : file_(std::move(file)),
      blocks_(blocks),
      scheduler_(scheduler),
      writer_(header, header.blocks.token_order, file_.get()),
      recorder_(blocks, header.blocks.token_order, &writer_) {
  blocks_->SetObserver(&recorder_);
  scheduler_->SetObserver(&recorder_);
}

EngineTrace::~EngineTrace() { Finish(); }

void EngineTrace::Finish() {
  if (std::exchange(finished_, true)) return;
  blocks_->SetObserver(nullptr);
  scheduler_->SetObserver(nullptr);
  writer_.Finish();
  file_->Close();
}

}  // namespace quire
