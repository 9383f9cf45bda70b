#include "block_manager/prefix_cache.h"

#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr int32_t kBlockSize = 2;

TEST(PrefixCacheTest, PrefixesWithEqualKeysAreToldApart) {
  PrefixCache cache(10, kBlockSize);
  const BlockHash key{0, 0};  // of everything
  const PrefixLink root = PrefixCache::Root({1, 1}), salted = PrefixCache::Root({2, 2});
  const std::vector<int32_t> ab = {1, 2}, cd = {3, 4}, tail = {5, 6};
  cache.Insert(root, key, ab, BlockId{1});
  cache.Insert(root, key, cd, BlockId{2});
  cache.Insert(cache.link(BlockId{1}), key, tail, BlockId{3});
  EXPECT_EQ(cache.Find(root, key, ab), BlockId{1});
  EXPECT_EQ(cache.Find(root, key, cd), BlockId{2});
  EXPECT_EQ(cache.Find(salted, key, ab), kNullBlock);
  EXPECT_EQ(cache.Find(cache.link(BlockId{1}), key, tail), BlockId{3});
  EXPECT_EQ(cache.Find(cache.link(BlockId{2}), key, tail), kNullBlock);  // the same tokens behind another prefix
  EXPECT_EQ(cache.CheckInvariants(), absl::OkStatus());
}

TEST(PrefixCacheTest, ChildrenOfAnErasedEntryStayLostWhateverTheBlockHoldsNext) {
  PrefixCache cache(10, kBlockSize);
  const PrefixLink root = PrefixCache::Root({1, 1});
  const std::vector<int32_t> ab = {1, 2}, cd = {3, 4}, tail = {5, 6};
  cache.Insert(root, {7, 0}, ab, BlockId{1});
  const PrefixLink old = cache.link(BlockId{1});
  cache.Insert(old, {8, 0}, tail, BlockId{2});
  cache.Erase(BlockId{1});
  EXPECT_FALSE(cache.IsAlive(old));
  cache.Insert(root, {7, 0}, cd, BlockId{1});
  EXPECT_FALSE(cache.IsAlive(old));
  EXPECT_TRUE(cache.IsAlive(root));
  EXPECT_EQ(cache.Find(cache.link(BlockId{1}), {8, 0}, tail), kNullBlock);
}

TEST(PrefixCacheTest, AgreesWithAMapOverRandomOperations) {
  constexpr int32_t kBlocks = 12;
  using Contents = std::tuple<uint64_t, uint64_t, int32_t, int32_t>;  // root, key, tokens
  for (uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    // Keys that all meet in a few slots, around the end of the table too.
    const uint64_t num_keys = 1 + seed % 5;
    PrefixCache cache(kBlocks, kBlockSize);
    std::map<Contents, BlockId> naive;
    for (int step = 0; step < 1000; ++step) {
      const BlockHash key{31 - random() % num_keys, random() % 2};
      const uint64_t root = random() % 2;
      const std::vector<int32_t> tokens = {static_cast<int32_t>(random() % 2), static_cast<int32_t>(random() % 2)};
      const BlockId block{static_cast<int32_t>(1 + random() % (kBlocks - 1))};
      const Contents contents{root, key.low * 2 + key.high, tokens[0], tokens[1]};
      const auto known = naive.find(contents);
      const PrefixLink parent = PrefixCache::Root({root, 0});
      ASSERT_EQ(cache.Find(parent, key, tokens), known == naive.end() ? kNullBlock : known->second);
      if (random() % 2 == 0) {
        if (known == naive.end() && !cache.Contains(block)) {
          cache.Insert(parent, key, tokens, block);
          naive[contents] = block;
        }
      } else if (cache.Contains(block)) {
        cache.Erase(block);
        std::erase_if(naive, [block](const auto& entry) { return entry.second == block; });
      }
      ASSERT_EQ(cache.size(), static_cast<int32_t>(naive.size()));
      ASSERT_EQ(cache.CheckInvariants(), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace quire
