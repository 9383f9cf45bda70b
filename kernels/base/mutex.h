#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

// A mutex with waiting for a condition, over the standard library, with the annotations that Clang's thread-safety
// analysis reads. Not absl::Mutex: ThreadSanitizer cannot see into Debian's uninstrumented Abseil and would report
// every access that such a lock guards.
namespace quire {

class ABSL_LOCKABLE Mutex {
 public:
  // Annotate the lambda with ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex): what it reads is then checked as well.
  using Condition = absl::FunctionRef<bool()>;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    // Before the unlock: whoever waits may destroy this object as soon as it has the lock.
    if (num_waiting_ > 0) changed_.notify_all();
    mutex_.unlock();
  }

  // With the lock held: releases it until `condition()`, called with the lock held, is true. Whatever makes it true
  // must do so under this lock.
  void Await(Condition condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitWithDeadline(condition, absl::InfiniteFuture());
  }

  // The same, at most until `deadline`. Returns the condition's last value.
  bool AwaitWithDeadline(Condition condition, absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    ++num_waiting_;
    bool result = condition();
    for (bool expired = false; !result && !expired; result = condition()) {
      if (deadline == absl::InfiniteFuture()) {
        changed_.wait(lock);
      } else {
        expired = changed_.wait_until(lock, absl::ToChronoTime(deadline)) == std::cv_status::timeout;
      }
    }
    --num_waiting_;
    lock.release();
    return result;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;  // guarded by mutex_
};

// Holds a mutex for the life of the object.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace quire
