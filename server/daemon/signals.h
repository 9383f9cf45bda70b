#pragma once

#include <csignal>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace quire {

// SIGTERM and SIGINT as a count to wait for; SIGHUP as a call; SIGPIPE and SIGXFSZ (a file at its limit is an error of
// writing) do nothing. One object per process, made in main before
// any other thread, so that every thread inherits the mask.
class Signals {
 public:
  Signals();
  ~Signals();

  // Until `on_early` is replaced by null, a signal calls it on the signal thread: there is nothing to drain yet.
  void SetEarlyExit(std::function<void()> on_early);
  // What SIGHUP does, on the signal thread; null: nothing.
  void SetHangup(std::function<void()> on_hangup);
  // True if at least `count` have come by `deadline`.
  bool WaitFor(int count, absl::Time deadline);

 private:
  void Run();

  sigset_t set_;
  absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_early_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> on_hangup_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace quire
