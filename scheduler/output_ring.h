#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "scheduler/engine.h"

namespace quire {

// The queue between the engine and the reader of one output shard: 4 slots, each reused with the capacity it has grown,
// and one spare slot for the end.
//
// One writer thread, one reader thread. A full ring makes the writer wait, unless the ring is ending: then what is
// written is appended to the spare slot, which the reader gets last. So an engine that stops neither loses an event nor
// waits for a reader.
class OutputRing : public StepOutputQueue {
 public:
  static constexpr int kNumSlots = 4;

  // --- writer

  // Moves *outputs into the ring and leaves it empty, with the capacity of an older slot. Blocks while the ring is
  // full.
  void Write(StepOutputs* outputs);
  // The writer has ended. Idempotent.
  void Close();

  // From any thread: the writer does not wait any more, neither now nor later.
  void StopWaiting();
  // From any thread: writes that found the ring full, one that waits now included.
  int64_t num_waits() const { return num_waits_.load(std::memory_order_relaxed); }

  // --- reader

  const StepOutputs* Pop() override;
  void Release() override;

 private:
  StepOutputs* Slot(int64_t index) { return &slots_[index % kNumSlots]; }
  bool full() const { return num_written_ - num_released_ == kNumSlots; }

  std::atomic<int64_t> num_waits_ = 0;
  std::mutex mutex_;
  std::condition_variable readable_, writable_;
  // Guarded by mutex_, but for the slots num_released_ .. num_written_ - 1, which belong to the reader.
  std::array<StepOutputs, kNumSlots> slots_;
  StepOutputs spare_;
  int64_t num_written_ = 0, num_released_ = 0;  // regular slots so far
  bool stop_waiting_ = false;
  bool closed_ = false;
  bool spare_used_ = false;
  bool spare_read_ = false;
};

}  // namespace quire
