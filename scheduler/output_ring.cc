#include "scheduler/output_ring.h"

#include <utility>

#include "kernels/base/check.h"

namespace quire {
namespace {

void Clear(StepOutputs& outputs) {
  outputs.prompt_scores.clear();
  outputs.sequences.clear();
  outputs.logprobs.clear();
}

// Appends the events of `from` to `to`, their log-probabilities included.
void Append(const StepOutputs& from, StepOutputs& to) {
  const auto offset = static_cast<int32_t>(to.logprobs.size());
  for (PromptScoreOutput score : from.prompt_scores) {
    score.logprobs_begin += offset;
    to.prompt_scores.push_back(score);
  }
  for (SequenceOutput event : from.sequences) {
    event.logprobs_begin += offset;
    to.sequences.push_back(std::move(event));
  }
  to.logprobs.insert(to.logprobs.end(), from.logprobs.begin(), from.logprobs.end());
}

}  // namespace

void OutputRing::Write(StepOutputs* outputs) {
  {
    std::unique_lock lock(mutex_);
    QUIRE_CHECK(!closed_);
    if (full() && !stop_waiting_) {
      num_waits_.fetch_add(1, std::memory_order_relaxed);
      writable_.wait(lock, [this] { return !full() || stop_waiting_; });
    }
    // Once the spare slot is in use everything later goes there, so that the order is kept.
    if (full() || spare_used_) {
      spare_used_ = true;
      Append(*outputs, spare_);
    } else {
      std::swap(*outputs, *Slot(num_written_));
      ++num_written_;
    }
    Clear(*outputs);
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
  return spare_used_ && !spare_read_ ? &spare_ : nullptr;
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
