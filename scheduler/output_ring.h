#pragma once

#include <array>
#include <condition_variable>
#include <mutex>

#include "scheduler/engine.h"

namespace quire {

// The queue between the engine and the reader of one output shard: 4 slots, each reused with the capacity it has grown,
// and one spare slot for the end.
//
// One writer thread, one reader thread. A full ring makes the writer wait, unless the ring is closing: then the writer
// gets the spare slot and appends to it, so that an engine that stops neither loses an event nor waits for a reader.
class OutputRing : public StepOutputQueue {
 public:
  static constexpr int kNumSlots = 4;

  // --- writer

  // The slot to append to, empty unless it is the spare one taken again. Blocks while the ring is full; *waited is set
  // to true if it did and left alone otherwise.
  StepOutputs* BeginWrite(bool* waited);
  // Hands the slot of BeginWrite over to the reader.
  void Publish();
  // The writer has ended. Idempotent.
  void Close();

  // From any thread: the writer does not wait any more, neither now nor later.
  void StopWaiting();

  // --- reader

  const StepOutputs* Pop() override;
  void Release() override;

 private:
  StepOutputs* Slot(int64_t index) { return &slots_[index % kNumSlots]; }

  std::mutex mutex_;
  std::condition_variable readable_, writable_;
  std::array<StepOutputs, kNumSlots> slots_;
  StepOutputs spare_;
  // Guarded by mutex_.
  int64_t num_written_ = 0, num_released_ = 0;  // regular slots so far
  bool stop_waiting_ = false;
  bool closed_ = false;
  bool spare_written_ = false;  // the spare slot holds events
  bool spare_read_ = false;
  // The writer's own.
  bool writing_spare_ = false;
};

}  // namespace quire
