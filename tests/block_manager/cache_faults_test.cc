// Faults that others have reported about prefix caches and KV blocks, by their number in the collection of fault
// reports. Those that need a scheduler are in tests/scheduler, those that need a model in tests/integration.

#include <algorithm>
#include <vector>

#include "block_manager/block_manager.h"
#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire::testing {
namespace {

TEST(CacheFaultsTest, B002_WhatWasNeverCommittedIsNeverFound) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> tokens = Iota(10);
  PrefixKeys keys = KeysOf(tokens, 4);
  {
    BlockTable dropped = blocks.NewTable();
    blocks.MatchPrefix(keys, tokens, 9, dropped);
    ASSERT_TRUE(blocks.Reserve(dropped, 10).ok());
    blocks.Seal(dropped, tokens, keys);  // as a preemption before the step does
  }
  EXPECT_EQ(Hit(blocks, tokens), 0);
  EXPECT_EQ(blocks.stats().cached, 0);
}

TEST(CacheFaultsTest, B010_ABlockAnswersToOneKeyAtATime) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4, .num_events = 50});
  const std::vector<int32_t> tokens = Iota(8), shorter = Iota(6);
  PrefixKeys keys = KeysOf(tokens, 4);
  BlockTable table = blocks.NewTable();
  ASSERT_TRUE(blocks.Reserve(table, 6).ok());
  blocks.Publish(table, shorter, 6, keys);
  blocks.Seal(table, shorter, keys);
  const BlockTable holder = blocks.Fork(table, 6);  // the tail stays in use
  const BlockId tail = table.blocks()[1];
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(blocks.Reserve(table, 8, &copies).ok());
  blocks.Publish(table, tokens, 8, keys);
  EXPECT_FALSE(blocks.IsFindable(tail)) << "the full block holds its tokens";
  const int64_t events = blocks.events().next();
  EXPECT_EQ(events, 2) << "the tail gave none";

  // The older step again: it must not bring the outdated entry back.
  BlockTable replayed = blocks.Fork(holder, 6);
  blocks.Publish(replayed, shorter, 6, keys);
  blocks.Seal(replayed, shorter, keys);
  EXPECT_FALSE(blocks.IsFindable(tail));
  EXPECT_EQ(blocks.events().next(), events);
  BlockTable found = blocks.NewTable();
  ASSERT_EQ(blocks.MatchPrefix(keys, shorter, 6, found).num_tokens, 6);
  EXPECT_EQ(found.blocks()[1], table.blocks()[1]);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(CacheFaultsTest, B011_AnEvictedBlockIsNoHit) {
  BlockManager blocks({.num_blocks = 5, .block_size = 2});
  const std::vector<int32_t> old = Iota(8), fresh = Iota(8, 50);
  Stored(blocks, old).Clear();
  const BlockTable owner = Stored(blocks, fresh);
  EXPECT_EQ(Hit(blocks, old), 0);
  EXPECT_EQ(Hit(blocks, fresh), 8);
  for (const BlockId block : owner.blocks()) EXPECT_EQ(blocks.count(block), 1);
}

TEST(CacheFaultsTest, B013_TheCacheTakesNoBlockFromItsHolders) {
  BlockManager blocks({.num_blocks = 6, .block_size = 2});
  const BlockTable table = Stored(blocks, Iota(6));
  const BlockTable second = blocks.Fork(table, 6);
  EXPECT_EQ(blocks.DropAll(), 3);
  for (const BlockId block : table.blocks()) EXPECT_EQ(blocks.count(block), 2);
  BlockTable hog = blocks.NewTable();
  EXPECT_EQ(blocks.Reserve(hog, 6).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(blocks.Reserve(hog, 4).ok());
  for (const BlockId block : hog.blocks()) {
    EXPECT_EQ(std::count(table.blocks().begin(), table.blocks().end(), block), 0);
  }
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(CacheFaultsTest, B015_B017_FiguresAreTrueInEveryOrderOfPublishingAndReleasing) {
  BlockManager blocks({.num_blocks = 9, .block_size = 2});
  const auto check = [&](int32_t active) {
    const BlockStats stats = blocks.stats();
    EXPECT_EQ(stats.active, active);
    EXPECT_EQ(stats.free + stats.cached + stats.active, stats.total);
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  };
  const std::vector<int32_t> tokens = Iota(8);
  for (int round = 0; round < 20; ++round) {
    BlockTable table = Stored(blocks, tokens);
    check(4);
    BlockTable shared = blocks.Fork(table, 8);
    table.Clear();
    check(4);
    blocks.DropAll();
    check(4);
    shared.Clear();
    check(0);
    Stored(blocks, tokens).Clear();
    check(0);
    EXPECT_EQ(blocks.stats().cached, 4);
    EXPECT_EQ(blocks.num_unused(), 8);
  }
}

TEST(CacheFaultsTest, B019_AllocationThatFailsAtAnyBlockChangesNothing) {
  for (int64_t at = 1; at <= 7; ++at) {
    BlockManager blocks({.num_blocks = 12, .block_size = 2});
    BlockTable owner = Stored(blocks, Iota(5));
    PrefixKeys keys = KeysOf(Iota(5), 2);
    blocks.Seal(owner, Iota(5), keys);
    const std::vector<int32_t> tokens = Iota(16);
    BlockTable table = blocks.NewTable();
    ASSERT_EQ(blocks.MatchPrefix(KeysOf(tokens, 2), tokens, 15, table).num_tokens, 5);
    const std::vector<BlockId> before(table.blocks().begin(), table.blocks().end());
    const BlockStats stats = blocks.stats();
    std::vector<BlockCopy> copies;
    blocks.FailAtBlock(at);
    ASSERT_EQ(blocks.Reserve(table, 16, &copies).ok(), at == 7);  // five fresh ones and a copy
    if (at == 7) continue;
    EXPECT_EQ(table.blocks(), before);
    EXPECT_EQ(table.num_stored(), 5);
    EXPECT_TRUE(copies.empty());
    EXPECT_EQ(blocks.stats().free, stats.free);
    EXPECT_EQ(blocks.stats().cached, stats.cached);
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
    EXPECT_TRUE(blocks.Reserve(table, 16, &copies).ok());
    EXPECT_EQ(copies.size(), 1u);
  }
}

TEST(CacheFaultsTest, B026_TheSmallestReusablePrefixIsKnownAndKept) {
  constexpr int32_t kBlockSize = 64;
  for (const int32_t minimum : {1, 10, kBlockSize}) {
    BlockManager blocks({.num_blocks = 9, .block_size = kBlockSize, .min_partial_tokens = minimum});
    EXPECT_EQ(blocks.LeastTokensOf(0), kBlockSize);
    EXPECT_EQ(blocks.LeastTokensOf(1), minimum);
    const BlockTable owner = Stored(blocks, Iota(2 * kBlockSize));
    for (const int32_t shared : {0, 1, 9, 10, kBlockSize - 1}) {
      std::vector<int32_t> tokens = Iota(shared);
      tokens.resize(kBlockSize + 5, -1);
      PrefixMatch match = Match(blocks, tokens, KeysOf(tokens, kBlockSize));
      EXPECT_EQ(match.num_tokens, 0) << "less than a block";
      EXPECT_EQ(match.miss, shared == 0 ? MissReason::kNeverSeen : MissReason::kUnderMinimum);
      tokens = Iota(kBlockSize + shared);
      tokens.resize(2 * kBlockSize + 5, -1);
      match = Match(blocks, tokens, KeysOf(tokens, kBlockSize));
      EXPECT_EQ(match.num_tokens, kBlockSize + (shared >= minimum ? shared : 0));
      EXPECT_EQ(match.miss, shared == 0 || shared >= minimum ? MissReason::kNeverSeen : MissReason::kCopyNotWorth);
    }
    const std::vector<int32_t> shorter = Iota(kBlockSize - 1);
    EXPECT_EQ(Match(blocks, shorter, KeysOf(shorter, kBlockSize)).miss, MissReason::kUnderMinimum);
  }
}

TEST(CacheFaultsTest, B026_WhatBecameOfTheFirstBlockSaysMoreThanAFewTokensOfIt) {
  BlockManager blocks({.num_blocks = 5, .block_size = 4});
  Stored(blocks, {0, 1, 2, 3}, KeysOf({0, 1, 2, 3}, 4)).Clear();
  EXPECT_EQ(Match(blocks, {0, 1, 2, 3}, KeysOf({0, 1, 2, 3}, 4, {7, 7})).miss, MissReason::kOtherRoot);
  Stored(blocks, Iota(13, 100)).Clear();  // takes all four blocks
  Stored(blocks, {0, 7, 7, 7}).Clear();
  const std::vector<int32_t> again = {0, 1, 2, 3, 4};
  const PrefixMatch match = Match(blocks, again, KeysOf(again, 4));
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(match.miss, MissReason::kEvicted) << "though one token of it was found";
}

TEST(CacheFaultsTest, B027_B028_WhateverChangesKvIsInTheKeyAndSaysWhatItIs) {
  BlockManager blocks({.num_blocks = 30, .block_size = 2});
  const std::vector<int32_t> tokens = Iota(6);
  const std::vector<KeyContext> contexts = {
      {.process_seed = 1, .weights_version = "w", .adapter = "", .salt = "", .tenant = ""},
      {.process_seed = 1, .weights_version = "w", .adapter = "x", .salt = "", .tenant = ""},
      {.process_seed = 1, .weights_version = "w", .adapter = "", .salt = "x", .tenant = ""},
      {.process_seed = 1, .weights_version = "w", .adapter = "", .salt = "", .tenant = "x"},
      {.process_seed = 1, .weights_version = "w reloaded", .adapter = "x", .salt = "", .tenant = ""},
      {.process_seed = 2, .weights_version = "w", .adapter = "", .salt = "", .tenant = ""},
  };
  std::vector<PrefixKeys> keys;
  for (const KeyContext& context : contexts) keys.push_back(KeysOf(tokens, 2, RootHash(context)));
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(Match(blocks, tokens, keys[i]).num_tokens, 0) << i;
    Stored(blocks, tokens, keys[i]).Clear();
    for (size_t j = 0; j <= i; ++j) EXPECT_EQ(Match(blocks, tokens, keys[j]).num_tokens, 6) << i << " " << j;
  }
}

TEST(CacheFaultsTest, B029_CollidingKeysNeverHandOverForeignTokens) {
  BlockManager blocks({.num_blocks = 60, .block_size = 2, .chain_hash = &OneBitHash});
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 12; ++i) prompts.push_back({i, 1, i % 3, 2, 5, 6});
  std::vector<std::vector<BlockId>> stored;
  for (const auto& prompt : prompts) {
    const PrefixKeys keys = KeysOf(prompt, 2, {3, 4}, &OneBitHash);
    EXPECT_EQ(Match(blocks, prompt, keys).num_tokens, 0);
    BlockTable table = Stored(blocks, prompt, keys);
    stored.emplace_back(table.blocks().begin(), table.blocks().end());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    BlockTable table = blocks.NewTable();
    EXPECT_EQ(blocks.MatchPrefix(KeysOf(prompts[i], 2, {3, 4}, &OneBitHash), prompts[i], 6, table).num_tokens, 6);
    EXPECT_EQ(table.blocks(), stored[i]);
  }
}

}  // namespace
}  // namespace quire::testing
