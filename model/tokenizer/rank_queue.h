#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace quire {

// Positions by rank, the leftmost of equal ranks first. Long inputs are dealt out to ranges of ranks, each of which
// becomes a heap when its turn comes: one heap of a million entries would miss the processor's cache at every level.
class RankQueue {
 public:
  // Of about `size` entries with ranks in [0, max_rank].
  RankQueue(size_t size, int32_t max_rank) {
    constexpr size_t kRangeEntries = 256, kMaxRanges = 4096;
    const size_t ranges = std::clamp<size_t>(size / kRangeEntries, 1, kMaxRanges);
    while (static_cast<size_t>(max_rank >> shift_) >= ranges) ++shift_;
    later_.resize((max_rank >> shift_) + 1);
  }

  void Push(int32_t rank, int32_t position) {
    const uint64_t key = static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(position);
    const auto range = static_cast<size_t>(rank >> shift_);
    if (range >= next_range_) return later_[range].push_back(key);
    now_.push_back(key);
    std::push_heap(now_.begin(), now_.end(), std::greater<>());
  }

  // The first in order; false if there is none.
  bool Pop(int32_t* rank, int32_t* position) {
    while (now_.empty()) {
      if (next_range_ == later_.size()) return false;
      now_ = std::exchange(later_[next_range_++], {});
      std::make_heap(now_.begin(), now_.end(), std::greater<>());
    }
    std::pop_heap(now_.begin(), now_.end(), std::greater<>());
    *rank = static_cast<int32_t>(now_.back() >> 32);
    *position = static_cast<int32_t>(now_.back() & 0xFFFFFFFF);
    now_.pop_back();
    return true;
  }

 private:
  int shift_ = 0;                             // rank >> shift_ is its range
  size_t next_range_ = 0;                     // entries of the ranges before it are in now_
  std::vector<uint64_t> now_;                 // a heap, the least first
  std::vector<std::vector<uint64_t>> later_;  // by range
};

}  // namespace quire
