#include "scheduler/output_ring.h"

#include "kernels/base/check.h"

namespace quire {

StepOutputs* OutputRing::BeginWrite(bool* waited) {
  std::unique_lock lock(mutex_);
  QUIRE_CHECK(!closed_);
  const auto full = [this] { return num_written_ - num_released_ == kNumSlots; };
  while (!spare_written_ && full() && !stop_waiting_) {
    *waited = true;
    writable_.wait(lock);
  }
  // Once the spare slot is used everything later goes there: order is kept.
  writing_spare_ = spare_written_ || full();
  if (writing_spare_) return &spare_;
  StepOutputs* slot = Slot(num_written_);
  slot->prompt_scores.clear();
  slot->sequences.clear();
  slot->logprobs.clear();
  return slot;
}

void OutputRing::Publish() {
  {
    std::lock_guard lock(mutex_);
    if (writing_spare_) {
      spare_written_ = true;
    } else {
      ++num_written_;
    }
  }
  readable_.notify_one();
}

void OutputRing::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  readable_.notify_one();
}

void OutputRing::StopWaiting() {
  {
    std::lock_guard lock(mutex_);
    stop_waiting_ = true;
  }
  writable_.notify_one();
}

const StepOutputs* OutputRing::Pop() {
  std::unique_lock lock(mutex_);
  readable_.wait(lock, [this] { return num_written_ > num_released_ || closed_; });
  if (num_written_ > num_released_) return Slot(num_released_);
  // The spare slot is the writer's to append to until it has closed the ring.
  return spare_written_ && !spare_read_ ? &spare_ : nullptr;
}

void OutputRing::Release() {
  {
    std::lock_guard lock(mutex_);
    if (num_written_ > num_released_) {
      ++num_released_;
    } else {
      spare_read_ = true;
    }
  }
  writable_.notify_one();
}

}  // namespace quire
