#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace quire {

// Positions by rank, the leftmost of equal ranks first. What comes is dealt out to ranges of ranks; when the turn of a
// range comes it is sorted and read from its beginning, beside a heap of what comes for it from then on. One heap of a
// million entries would miss the processor's cache at every level, and runs of one rank are sorted as they come.
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
    late_.push_back(key);
    std::push_heap(late_.begin(), late_.end(), std::greater<>());
  }

  // The first in order; false if there is none.
  bool Pop(int32_t* rank, int32_t* position) {
    while (at_ == sorted_.size() && late_.empty()) {
      if (next_range_ == later_.size()) return false;
      sorted_ = std::exchange(later_[next_range_++], {});
      at_ = 0;
      if (!std::is_sorted(sorted_.begin(), sorted_.end())) std::sort(sorted_.begin(), sorted_.end());
    }
    uint64_t key;
    if (late_.empty() || (at_ < sorted_.size() && sorted_[at_] < late_.front())) {
      key = sorted_[at_++];
    } else {
      std::pop_heap(late_.begin(), late_.end(), std::greater<>());
      key = late_.back();
      late_.pop_back();
    }
    *rank = static_cast<int32_t>(key >> 32);
    *position = static_cast<int32_t>(key & 0xFFFFFFFF);
    return true;
  }

 private:
  int shift_ = 0;                 // rank >> shift_ is its range
  size_t next_range_ = 0;         // entries of the ranges before it are in sorted_ and late_, or gone
  std::vector<uint64_t> sorted_;  // of the latest range, read up to at_
  size_t at_ = 0;
  std::vector<uint64_t> late_;                // a heap, the least first
  std::vector<std::vector<uint64_t>> later_;  // by range
};

}  // namespace quire
