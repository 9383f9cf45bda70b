#include "block_manager/token_permutation.h"

#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(TokenPermutationTest, IsABijectionForEveryWidth) {
  for (int bits = TokenPermutation::kMinBits; bits <= 17; ++bits) {
    SCOPED_TRACE(bits);
    const TokenPermutation permutation({3, 5}, bits);
    const int32_t size = 1 << bits;
    std::vector<bool> seen(size, false);
    for (int32_t id = 0; id < size; ++id) {
      const int32_t image = permutation(id);
      ASSERT_GE(image, 0);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]);
      seen[image] = true;
    }
    for (const int32_t outside : {-1, size, INT32_MAX}) EXPECT_EQ(permutation(outside), outside);
  }
  const TokenPermutation widest({3, 5}, TokenPermutation::kMaxBits);
  EXPECT_GE(widest(INT32_MAX), 0);
  EXPECT_NE(widest(INT32_MAX), INT32_MAX);
}

TEST(TokenPermutationTest, KeysMatterAndFewIdsStay) {
  const TokenPermutation a({3, 5}, 16), b({3, 6}, 16), c({4, 5}, 16);
  int fixed = 0, a_is_b = 0, a_is_c = 0, in_order = 0;
  for (int32_t id = 0; id < 1 << 16; ++id) {
    fixed += a(id) == id;
    a_is_b += a(id) == b(id);
    a_is_c += a(id) == c(id);
    in_order += id > 0 && a.Less(id - 1, id);
  }
  EXPECT_LE(fixed, 10);
  EXPECT_LE(a_is_b, 10);
  EXPECT_LE(a_is_c, 10);
  EXPECT_NEAR(in_order, 1 << 15, 1000);
  EXPECT_EQ(TokenPermutation()(77), 77);
}

}  // namespace
}  // namespace quire
