#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "scheduler/trace/trace_file.h"

namespace quire {

// A file for a schedule trace of at most `max_bytes`, readable for its owner only: whoever appends fills a buffer of 8
// MiB and never waits, a thread of this object writes. A new file that nothing was appended to is removed with this
// object.
//
// Thread rule: Append, Close and Wait for one thread at a time, the others for any.
class TraceFile : public TraceBytes {
 public:
  // Whether a directory is there in which files can be made: kFailedPrecondition naming it.
  static absl::Status CheckDirectory(const std::string& directory);
  // A new file in a directory. `name`: 1 to 128 letters, digits, '.', '_' and '-', not beginning with '.';
  // kInvalidArgument. Whatever has that name already, links included, stays as it is: kAlreadyExists. kUnavailable
  // naming path and reason.
  static absl::StatusOr<std::shared_ptr<TraceFile>> Create(const std::string& directory, const std::string& name,
                                                           int64_t max_bytes);
  // The file of this path, which is overwritten if it is there. kUnavailable naming path and reason.
  static absl::StatusOr<std::shared_ptr<TraceFile>> Overwrite(const std::string& path, int64_t max_bytes);
  ~TraceFile() override;  // waits for the thread

  // kFull also once the file cannot be written.
  Answer Append(absl::string_view bytes, bool last) override;
  // Nothing follows. Returns at once; Wait waits until everything is written, or cannot be.
  void Close();
  void Wait();

  const std::string& path() const { return path_; }
  int64_t max_bytes() const { return max_bytes_; }
  bool written() const;         // closed, and the thread has ended
  int64_t num_bytes() const;    // appended; of a file that cannot be written: what is in it
  std::string problem() const;  // why it cannot be written; empty: it can

 private:
  TraceFile(int descriptor, std::string path, bool is_new, int64_t max_bytes);
  void Begin();
  void Run();
  // Returns what went wrong.
  std::string WriteAll();

  const int descriptor_;
  const std::string path_;
  const bool is_new_;
  const int64_t max_bytes_;
  std::string writing_;  // of the thread

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::string pending_, problem_;
  int64_t num_appended_ = 0, num_written_ = 0;
  bool closed_ = false, ended_ = false;

  std::thread thread_;
};

}  // namespace quire
