#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"

namespace quire {

// Threads for work that takes as long as a text is: encoding and decoding. Tasks run in order of arrival; how many wait
// is bounded at the door, so that a full pool is an answer and not a wait. Any thread.
class TokenizerPool {
 public:
  struct Options {
    int32_t num_threads = 1;      // >= 1
    int64_t max_tasks = 1024;     // waiting and running
    int64_t max_bytes = 1 << 28;  // sum over tasks; a task alone in the pool may be of any size
  };

  explicit TokenizerPool(Options options);
  ~TokenizerPool();  // Stop

  // Runs `task` later; `bytes` says how much text it holds. kResourceExhausted naming the limit, kUnavailable after
  // Stop; the task is dropped then.
  absl::Status Post(int64_t bytes, std::function<void()> task);

  // Runs what was taken, refuses what comes, joins. Idempotent.
  void Stop();

 private:
  struct Task {
    int64_t bytes;
    std::function<void()> run;
  };

  void Run();

  const Options options_;
  Mutex mutex_;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_tasks_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
