#include "tests/bench/buddy_allocator.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(BuddyAllocatorTest, CutsAPoolThatIsNoPowerOfTwo) {
  BuddyAllocator slots(15'728);  // 8192 + 4096 + 2048 + 1024 + 256 + 64 + 32 + 16
  EXPECT_EQ(slots.num_free(), 15'728);
  EXPECT_TRUE(slots.CheckInvariants());
  EXPECT_FALSE(slots.Allocate(8'193).has_value());
  // The smallest ranges that are large enough go first.
  for (const int32_t first : {12'288, 8'192, 10'240, 0, 2'048, 4'096, 6'144}) EXPECT_EQ(slots.Allocate(2'048), first);
  EXPECT_FALSE(slots.Allocate(2'048).has_value());
  EXPECT_EQ(slots.Allocate(1'024), 14'336);
  EXPECT_EQ(slots.Allocate(16), 15'712);
  EXPECT_EQ(slots.num_free(), 15'728 - 7 * 2'048 - 1'024 - 16);
  EXPECT_TRUE(slots.CheckInvariants());
}

TEST(BuddyAllocatorTest, RoundsUpSplitsAndJoins) {
  BuddyAllocator slots(16);
  EXPECT_EQ(slots.Allocate(3), 0);
  EXPECT_EQ(slots.size(0), 4);
  EXPECT_EQ(slots.Allocate(1), 4);
  EXPECT_EQ(slots.size(4), 1);
  EXPECT_EQ(slots.Allocate(5), 8);
  EXPECT_EQ(slots.num_free(), 3);
  EXPECT_FALSE(slots.Allocate(3).has_value());  // 5 | 6 7: enough slots, not in one range
  slots.Free(4);
  EXPECT_EQ(slots.Allocate(4), 4);
  slots.Free(0);
  slots.Free(8);
  slots.Free(4);
  EXPECT_EQ(slots.Allocate(16), 0);
  EXPECT_EQ(slots.num_free(), 0);
}

// Against a plain array of slots: ranges are disjoint, aligned, large enough, and refused only when no aligned free
// range is there.
TEST(BuddyAllocatorTest, AgreesWithAnArrayOfSlots) {
  std::mt19937 random(1);
  for (const int32_t num_slots : {1, 2, 5, 64, 100, 255, 1'000}) {
    BuddyAllocator buddy(num_slots);
    std::vector<bool> used(num_slots);
    std::vector<int32_t> firsts;
    const auto mark = [&](int32_t first, bool value) {
      for (int32_t i = first; i < first + buddy.size(first); ++i) {
        ASSERT_NE(used[i], value);
        used[i] = value;
      }
    };
    const auto has_room = [&](int32_t size) {
      for (int32_t first = 0; first + size <= num_slots; first += size) {
        if (std::find(used.begin() + first, used.begin() + first + size, true) == used.begin() + first + size) {
          return true;
        }
      }
      return false;
    };
    for (int i = 0; i < 2'000; ++i) {
      if (!firsts.empty() && random() % 2 == 0) {
        std::swap(firsts[random() % firsts.size()], firsts.back());
        mark(firsts.back(), false);
        buddy.Free(firsts.back());
        firsts.pop_back();
      } else {
        const auto wanted = static_cast<int32_t>(1 + random() % (num_slots / 4 + 1));
        const auto size = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(wanted)));
        const auto first = buddy.Allocate(wanted);
        ASSERT_EQ(first.has_value(), has_room(size)) << wanted << " of " << num_slots;
        if (!first.has_value()) continue;
        EXPECT_EQ(buddy.size(*first), size);
        EXPECT_EQ(*first % size, 0);
        mark(*first, true);
        firsts.push_back(*first);
      }
      ASSERT_TRUE(buddy.CheckInvariants());
      ASSERT_EQ(buddy.num_free(), std::count(used.begin(), used.end(), false));
    }
  }
}

}  // namespace
}  // namespace quire
