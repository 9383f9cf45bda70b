#include "scheduler/ngram_finder.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"

namespace quire {

NgramFinder::NgramFinder(int32_t max_tokens)
    : ends_(std::bit_ceil(2 * static_cast<uint32_t>(std::clamp(max_tokens, kSize, kMaxTokens)))) {}

size_t NgramFinder::SlotOf(absl::Span<const int32_t> text, int32_t end) const {
  const absl::Span<const int32_t> wanted = text.subspan(end - kSize, kSize);
  const size_t mask = ends_.size() - 1;
  size_t slot = absl::HashOf(wanted[0], wanted[1], wanted[2]) & mask;
  while (ends_[slot] != 0 && text.subspan(ends_[slot] - kSize, kSize) != wanted) slot = (slot + 1) & mask;
  return slot;
}

int32_t NgramFinder::Find(absl::Span<const int32_t> text) {
  const auto size = static_cast<int32_t>(text.size());
  if (size < kSize) return -1;
  while (num_known_ < size - 1) {  // the last kSize tokens themselves have nothing behind them yet
    const size_t slot = SlotOf(text, ++num_known_);
    if (ends_[slot] == 0) {
      if (2 * (num_used_ + 1) > static_cast<int32_t>(ends_.size())) continue;
      ++num_used_;
    }
    ends_[slot] = num_known_;
  }
  const int32_t end = ends_[SlotOf(text, size)];
  return end == 0 ? -1 : end;
}

}  // namespace quire
