#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace quire {

// Contiguous ranges out of a fixed number of slots, by the binary buddy method (Knuth, The Art of Computer
// Programming 1, 2.5): a range has 2^k slots and begins at a multiple of 2^k. What the paged block manager is compared
// with. A pool that is no power of two is cut into the largest ranges that fit, from slot 0 on. Not thread-safe.
class BuddyAllocator {
 public:
  // `num_slots`: in [1, 2^30].
  explicit BuddyAllocator(int32_t num_slots);

  // The first slot of the lowest of the smallest free ranges with room for `num_slots` (in [1, 2^30]), split down to
  // the next power of two; nothing if there is none.
  std::optional<int32_t> Allocate(int32_t num_slots);

  // Gives back what Allocate returned, and joins it with its buddies as long as they are free.
  void Free(int32_t first);

  int32_t num_slots() const { return num_slots_; }
  int32_t num_free() const { return num_free_; }
  // Slots of the range that begins at `first`, which Allocate returned.
  int32_t size(int32_t first) const { return 1 << allocated_.at(first); }

  // Free and allocated ranges are aligned, disjoint, cover every slot, and no two free buddies lie apart.
  bool CheckInvariants() const;

 private:
  const int32_t num_slots_;
  int32_t num_free_;
  std::vector<std::set<int32_t>> free_;             // by k: first slots of the free ranges of 2^k
  std::unordered_map<int32_t, int32_t> allocated_;  // first slot to k
};

}  // namespace quire
