#include <set>
#include <utility>
#include <vector>

#include "block_manager/block.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

std::pair<uint64_t, uint64_t> Pair(const BlockHash& hash) { return {hash.low, hash.high}; }

TEST(BlockHashTest, EachFieldOfTheContextCountsByItsKind) {
  // Seed, weights, adapter, salt, tenant.
  std::vector<KeyContext> contexts = {{0, "", "", "", ""}, {1, "", "", "", ""}};
  for (const char* text : {"x", "xy", "y"}) {
    contexts.push_back({0, text, "", "", ""});
    contexts.push_back({0, "", text, "", ""});
    contexts.push_back({0, "", "", text, ""});
    contexts.push_back({0, "", "", "", text});
  }
  contexts.push_back({0, "", "x", "y", ""});
  contexts.push_back({0, "", "", "x", "y"});
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (const KeyContext& context : contexts) EXPECT_TRUE(seen.insert(Pair(RootHash(context))).second);
  EXPECT_EQ(RootHash(contexts[3]), RootHash(KeyContext(contexts[3])));
}

TEST(BlockHashTest, ChainDependsOnBothHalvesOfTheParentAndOnEveryToken) {
  const BlockHash parent{1, 2};
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  const BlockHash base = ChainHash(parent, tokens);
  EXPECT_EQ(ChainHash(parent, tokens), base);
  EXPECT_NE(ChainHash({9, 2}, tokens), base);
  EXPECT_NE(ChainHash({1, 9}, tokens), base);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<int32_t> changed = tokens;
    changed[i] ^= 1 << 30;
    EXPECT_NE(ChainHash(parent, changed), base);
  }
  EXPECT_NE(ChainHash(parent, absl::MakeSpan(tokens).first(3)), base);
}

}  // namespace
}  // namespace quire
