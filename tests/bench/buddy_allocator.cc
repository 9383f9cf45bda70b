#include "tests/bench/buddy_allocator.h"

#include <bit>
#include <map>

#include "kernels/base/check.h"

namespace quire {
namespace {

constexpr int kNumOrders = 31;  // sizes 2^0 .. 2^30

}  // namespace

BuddyAllocator::BuddyAllocator(int32_t num_slots) : num_slots_(num_slots), num_free_(num_slots), free_(kNumOrders) {
  QUIRE_CHECK(num_slots >= 1 && num_slots <= 1 << 30);
  int32_t first = 0;
  for (int order = kNumOrders - 1; order >= 0; --order) {
    if ((num_slots >> order & 1) == 0) continue;
    free_[order].insert(first);
    first += 1 << order;
  }
}

std::optional<int32_t> BuddyAllocator::Allocate(int32_t num_slots) {
  QUIRE_CHECK(num_slots >= 1 && num_slots <= 1 << 30);
  const int order = std::bit_width(static_cast<uint32_t>(num_slots) - 1);
  int from = order;
  while (from < kNumOrders && free_[from].empty()) ++from;
  if (from == kNumOrders) return std::nullopt;
  const int32_t first = *free_[from].begin();
  free_[from].erase(free_[from].begin());
  while (from > order) {
    --from;
    free_[from].insert(first + (1 << from));
  }
  allocated_[first] = order;
  num_free_ -= 1 << order;
  return first;
}

void BuddyAllocator::Free(int32_t first) {
  const auto found = allocated_.find(first);
  QUIRE_CHECK(found != allocated_.end());
  int order = found->second;
  allocated_.erase(found);
  num_free_ += 1 << order;
  while (free_[order].erase(first ^ 1 << order) == 1) {
    first &= ~(1 << order);
    ++order;
  }
  free_[order].insert(first);
}

bool BuddyAllocator::CheckInvariants() const {
  std::map<int32_t, int> ranges(allocated_.begin(), allocated_.end());
  int64_t num_free = 0;
  for (int order = 0; order < kNumOrders; ++order) {
    for (const int32_t first : free_[order]) {
      if (!ranges.emplace(first, order).second || free_[order].contains(first ^ 1 << order)) return false;
      num_free += 1 << order;
    }
  }
  int64_t end = 0;
  for (const auto& [first, order] : ranges) {
    if (first != end || first % (1 << order) != 0) return false;
    end += 1 << order;
  }
  return end == num_slots_ && num_free == num_free_;
}

}  // namespace quire
