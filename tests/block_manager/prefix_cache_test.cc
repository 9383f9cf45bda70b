#include "block_manager/prefix_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
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
  EXPECT_TRUE(cache.has_children(BlockId{1}));
  cache.Erase(BlockId{2});
  EXPECT_FALSE(cache.has_children(BlockId{1}));
  cache.Erase(BlockId{1});
  EXPECT_FALSE(cache.IsAlive(old));
  cache.Insert(root, {7, 0}, cd, BlockId{1});
  EXPECT_FALSE(cache.IsAlive(old));
  EXPECT_TRUE(cache.IsAlive(root));
  EXPECT_EQ(cache.Find(cache.link(BlockId{1}), {8, 0}, tail), kNullBlock);
}

TEST(PrefixCacheTest, TheLongestMatchIsFoundAmongFullEntriesAndTails) {
  PrefixCache cache(10, 4);
  const PrefixLink root = PrefixCache::Root({1, 1});
  EXPECT_EQ(cache.FindLongest(root, {1, 2}).block, kNullBlock);
  EXPECT_EQ(cache.Insert(root, {7, 0}, {1, 2, 3, 4}, BlockId{1}), kNullBlock);
  EXPECT_EQ(cache.Insert(root, {}, {1, 2, 5}, BlockId{2}), kNullBlock);
  EXPECT_EQ(cache.Insert(root, {}, {6}, BlockId{3}), kNullBlock);
  EXPECT_EQ(cache.Insert(cache.link(BlockId{1}), {}, {1, 2, 3}, BlockId{4}), kNullBlock);
  const auto longest = [&](const PrefixLink& parent, std::vector<int32_t> tokens) {
    const PrefixCache::Match match = cache.FindLongest(parent, tokens);
    return std::pair(match.block, match.num_tokens);
  };
  EXPECT_EQ(longest(root, {1, 2, 3, 9}), std::pair(BlockId{1}, 3));
  EXPECT_EQ(longest(root, {1, 2, 5, 9}), std::pair(BlockId{2}, 3));
  EXPECT_EQ(longest(root, {1, 2, 3, 4}), std::pair(BlockId{1}, 4));
  EXPECT_EQ(longest(root, {1, 9}).second, 1);
  EXPECT_EQ(longest(root, {6, 6, 6, 6}), std::pair(BlockId{3}, 1));
  EXPECT_EQ(longest(root, {7}), std::pair(kNullBlock, 0));
  EXPECT_EQ(longest(PrefixCache::Root({2, 2}), {1, 2, 3, 4}), std::pair(kNullBlock, 0));
  EXPECT_EQ(longest(cache.link(BlockId{1}), {1, 2, 3, 4}), std::pair(BlockId{4}, 3));
  EXPECT_EQ(cache.CheckInvariants(), absl::OkStatus());

  // What the tail holds is now held by a full block too: the tail goes.
  EXPECT_EQ(cache.Insert(root, {8, 0}, {1, 2, 5, 6}, BlockId{5}), BlockId{2});
  EXPECT_FALSE(cache.Contains(BlockId{2}));
  EXPECT_EQ(longest(root, {1, 2, 5, 9}), std::pair(BlockId{5}, 3));
  EXPECT_EQ(cache.CheckInvariants(), absl::OkStatus());
}

TEST(PrefixCacheTest, ListsTheChildrenOfAParentInOrder) {
  PrefixCache cache(10, 2);
  const PrefixLink root = PrefixCache::Root({1, 1}), other = PrefixCache::Root({2, 2});
  cache.Insert(root, {7, 0}, {3, 4}, BlockId{1});
  cache.Insert(root, {8, 0}, {1, 4}, BlockId{2});
  cache.Insert(root, {}, {2}, BlockId{3});
  cache.Insert(other, {9, 0}, {1, 1}, BlockId{4});
  std::vector<BlockId> children;
  for (BlockId b = cache.FirstChild(root); b != kNullBlock; b = cache.NextSibling(b)) children.push_back(b);
  EXPECT_EQ(children, (std::vector<BlockId>{BlockId{2}, BlockId{3}, BlockId{1}}));
  EXPECT_EQ(cache.FirstChild(cache.link(BlockId{1})), kNullBlock);
  EXPECT_EQ(cache.NextSibling(BlockId{4}), kNullBlock);
}

TEST(PrefixCacheTest, AgreesWithAMapOverRandomOperations) {
  constexpr int32_t kBlocks = 12;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto block_size = static_cast<int32_t>(1 + seed % 4);
    const uint64_t num_keys = 1 + seed % 5;  // so few that most collide, around the end of the table too
    PrefixCache cache(kBlocks, block_size);
    std::map<BlockId, std::pair<uint64_t, std::vector<int32_t>>> naive;  // root and tokens
    for (int step = 0; step < 1000; ++step) {
      const uint64_t root = random() % 2;
      std::vector<int32_t> tokens(1 + random() % block_size);
      uint64_t sum = root;
      for (int32_t& token : tokens) sum += token = static_cast<int32_t>(random() % 3);
      const BlockHash key{31 - sum % num_keys, 0};
      const BlockId block{static_cast<int32_t>(1 + random() % (kBlocks - 1))};
      const PrefixLink parent = PrefixCache::Root({root, 0});
      int32_t longest = 0;
      BlockId equal = kNullBlock;
      for (const auto& [b, entry] : naive) {
        if (entry.first != root) continue;
        const auto shared = std::mismatch(tokens.begin(), tokens.end(), entry.second.begin(), entry.second.end());
        longest = std::max(longest, static_cast<int32_t>(shared.first - tokens.begin()));
        if (entry.second == tokens) equal = b;
      }
      const bool full = static_cast<int32_t>(tokens.size()) == block_size;
      const PrefixCache::Match match = cache.FindLongest(parent, tokens);
      ASSERT_EQ(match.num_tokens, longest);
      if (longest > 0) {
        ASSERT_EQ(naive.at(match.block).first, root);
        ASSERT_TRUE(std::equal(tokens.begin(), tokens.begin() + longest, naive.at(match.block).second.begin()));
      }
      if (full) {
        ASSERT_EQ(cache.Find(parent, key, tokens), equal);
      }
      if (random() % 2 == 0) {
        if (longest < static_cast<int32_t>(tokens.size()) && !cache.Contains(block)) {
          const BlockId promoted = cache.Insert(parent, key, tokens, block);
          ASSERT_EQ(promoted != kNullBlock, std::erase_if(naive, [&](const auto& entry) {
                                              const std::vector<int32_t>& own = entry.second.second;
                                              return entry.second.first == root && own.size() < tokens.size() &&
                                                     std::equal(own.begin(), own.end(), tokens.begin());
                                            }) == 1);
          naive[block] = {root, tokens};
        }
      } else if (cache.Contains(block)) {
        cache.Erase(block);
        naive.erase(block);
      }
      ASSERT_EQ(cache.size(), static_cast<int32_t>(naive.size()));
      ASSERT_EQ(cache.CheckInvariants(), absl::OkStatus());
    }
  }
}

}  // namespace
}  // namespace quire
