#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace quire {

// A closeable queue between threads: many producers, and one consumer that takes everything there is. Full is an answer
// at the door, never a wait. Safe from any thread; in steady state nothing allocates.
template <typename T>
class BoundedQueue {
 public:
  enum class PushResult { kOk, kFull, kClosed };

  // Room for `capacity` items of TryPush and, beyond them, for `reserved` of PushReserved.
  BoundedQueue(size_t capacity, size_t reserved) : capacity_(capacity), reserved_(reserved) {
    items_.reserve(capacity + reserved);
  }

  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Moves from `item` only if the answer is kOk.
  PushResult TryPush(T&& item) { return Push(std::move(item), capacity_); }

  // The same for items that must not be turned away while ordinary ones fill the queue (aborts): may use the reserved
  // room as well.
  PushResult PushReserved(T&& item) { return Push(std::move(item), capacity_ + reserved_); }

  // Replaces *out by all items in order of arrival, waiting for the first one until `deadline` (InfinitePast: not at
  // all). False once the queue is closed and empty; true with an empty *out when the deadline has passed.
  bool PopAll(absl::Time deadline, std::vector<T>* out) {
    out->clear();
    out->reserve(capacity_ + reserved_);
    const absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithDeadline(absl::Condition(this, &BoundedQueue::HasNews), deadline);
    items_.swap(*out);
    return !out->empty() || !closed_;
  }

  // Refuses items from now on; what is queued can still be taken. Idempotent.
  void Close() {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  size_t size() const {
    const absl::MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  PushResult Push(T&& item, size_t limit) {
    const absl::MutexLock lock(&mutex_);
    if (closed_) return PushResult::kClosed;
    if (items_.size() >= limit) return PushResult::kFull;
    items_.push_back(std::move(item));
    return PushResult::kOk;
  }

  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !items_.empty(); }

  const size_t capacity_;
  const size_t reserved_;
  mutable absl::Mutex mutex_;
  std::vector<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
