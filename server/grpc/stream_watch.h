#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace quire {

// A call that may find its client not reading.
class Stallable {
 public:
  virtual ~Stallable() = default;
  // Cancels the call if what it sends has been under way for longer than `stall_timeout`, and counts it.
  virtual void CancelIfStalled(absl::Time now, absl::Duration stall_timeout) = 0;
};

// All calls of GenerateStream and Generate under way; one thread looks them over a few times a second. Any thread.
class StreamWatch {
 public:
  void Add(const std::shared_ptr<Stallable>& stream);
  void Remove(const Stallable* stream);

  // Blocks until there is none, or until `deadline`; true if there is none.
  bool WaitEmpty(absl::Time deadline);

  // Cancels the stalled ones.
  void CancelStalled(absl::Time now, absl::Duration stall_timeout);
  // A call had to be cancelled for its client's not reading.
  void CountStalled() { num_stalled_.fetch_add(1, std::memory_order_relaxed); }
  int64_t num_stalled() const { return num_stalled_.load(std::memory_order_relaxed); }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<const Stallable*, std::weak_ptr<Stallable>> streams_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> num_stalled_ = 0;
};

}  // namespace quire
