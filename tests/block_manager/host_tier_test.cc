#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire::testing {
namespace {

class HostTierTest : public ::testing::Test {
 protected:
  static constexpr int32_t kBlockSize = 4, kDevice = 6;

  explicit HostTierTest(int32_t host = 8)
      : blocks({.num_blocks = kDevice + 1,
                .block_size = kBlockSize,
                .num_events = 64,
                .integrity = true,
                .num_host_blocks = host}) {}

  // Takes every device block and gives it back; what was cached goes.
  void Flush() {
    BlockTable hog = blocks.NewTable();
    ASSERT_EQ(blocks.Reserve(hog, kDevice * kBlockSize, &copies), absl::OkStatus());
    ASSERT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  }
  // A table for one more token than `tokens` has, whose match is reserved.
  BlockTable Resume(const std::vector<int32_t>& tokens, const PrefixKeys& keys) {
    BlockTable table = blocks.NewTable();
    match = blocks.MatchPrefix(keys, tokens, static_cast<int32_t>(tokens.size()), table);
    EXPECT_EQ(blocks.Reserve(table, static_cast<int32_t>(tokens.size()) + 1, &copies), absl::OkStatus());
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
    return table;
  }
  BlockTable Resume(const std::vector<int32_t>& tokens) { return Resume(tokens, KeysOf(tokens, kBlockSize)); }

  // {source, destination} are on the host, one by one.
  std::vector<std::pair<bool, bool>> Directions() const {
    std::vector<std::pair<bool, bool>> directions;
    for (const BlockCopy& copy : copies) directions.emplace_back(blocks.IsHost(copy.src), blocks.IsHost(copy.dst));
    return directions;
  }

  BlockManager blocks;
  std::vector<BlockCopy> copies;
  PrefixMatch match;
};

TEST_F(HostTierTest, WhatIsEvictedIsFoundOnTheHostAndCopiedBack) {
  const std::vector<int32_t> text = Iota(10);
  {
    PrefixKeys keys = KeysOf(text, kBlockSize);
    BlockTable table = Stored(blocks, text, keys);
    blocks.Seal(table, text, keys);
  }
  const int64_t events = blocks.events().next();
  Flush();
  ASSERT_EQ(Directions(), (std::vector<std::pair<bool, bool>>(3, {false, true}))) << "tails before heads";
  EXPECT_EQ(blocks.stats().host_used, 3);
  EXPECT_EQ(blocks.stats().host_total, 8);
  // Two of the three are full: stored on the host, then removed from the device.
  ASSERT_EQ(blocks.events().next(), events + 4);
  const KvEvent stored = blocks.events().Get(events + 2), removed = blocks.events().Get(events + 3);
  EXPECT_EQ(stored.kind, KvEvent::Kind::kStored);
  EXPECT_EQ(stored.tier, KvEvent::Tier::kHost);
  EXPECT_EQ(stored.parent, (BlockHash{3, 4}));
  EXPECT_EQ(removed.kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(removed.tier, KvEvent::Tier::kDevice);
  EXPECT_EQ(removed.key, stored.key);
  for (const PrefixInfo& info : blocks.ListPrefixes()) EXPECT_TRUE(info.on_host);

  const std::vector<BlockCopy> out = std::exchange(copies, {});
  const BlockTable table = Resume(text);
  EXPECT_EQ(match.num_tokens, 10);
  EXPECT_EQ(match.partial_tokens, 2);
  EXPECT_EQ(match.host_blocks, 3);
  ASSERT_EQ(Directions(), (std::vector<std::pair<bool, bool>>(3, {true, false})));
  // Evicted were tail, second, first block.
  EXPECT_EQ(copies[0], (BlockCopy{out[2].dst, table.blocks()[0]}));
  EXPECT_EQ(copies[1], (BlockCopy{out[1].dst, table.blocks()[1]}));
  EXPECT_EQ(copies[2], (BlockCopy{out[0].dst, table.blocks()[2]}));
  // Full blocks are found on the device again; the tail was copied and stays.
  EXPECT_TRUE(blocks.IsFindable(table.blocks()[0]));
  EXPECT_TRUE(blocks.IsFindable(table.blocks()[1]));
  EXPECT_FALSE(blocks.IsFindable(table.blocks()[2]));
  EXPECT_EQ(blocks.stats().host_used, 1);
  EXPECT_EQ(blocks.stats().copied_out, 3);
  EXPECT_EQ(blocks.stats().copied_in, 3);
}

TEST_F(HostTierTest, ASourceThatIsHandedOutInTheSamePlanIsCopiedBefore) {
  Stored(blocks, Iota(8));
  BlockTable hog = blocks.NewTable();
  ASSERT_EQ(blocks.Reserve(hog, kDevice * kBlockSize, &copies), absl::OkStatus());
  const size_t num_out = copies.size();
  hog.Clear();
  const BlockTable table = Resume(Iota(8));
  ASSERT_EQ(copies.size(), num_out + 2);
  for (size_t i = 0; i < num_out; ++i) EXPECT_FALSE(blocks.IsHost(copies[i].src));
  for (size_t i = num_out; i < copies.size(); ++i) {
    EXPECT_TRUE(std::any_of(copies.begin(), copies.begin() + static_cast<int64_t>(num_out),
                            [&](const BlockCopy& out) { return out.dst == copies[i].src; }));
  }
}

TEST_F(HostTierTest, B028_SaltsAndTenantsDoNotMeetOnTheHost) {
  const std::vector<int32_t> text = Iota(8);
  KeyContext mine, salted, theirs;
  mine.tenant = salted.tenant = "a";
  salted.salt = "s";
  theirs.tenant = "b";
  Stored(blocks, text, KeysOf(text, kBlockSize, RootHash(mine)));
  Flush();
  ASSERT_EQ(blocks.stats().host_used, 2);
  EXPECT_EQ(Match(blocks, text, KeysOf(text, kBlockSize, RootHash(salted))).num_tokens, 0);
  EXPECT_EQ(Match(blocks, text, KeysOf(text, kBlockSize, RootHash(theirs))).num_tokens, 0);
  EXPECT_EQ(Match(blocks, text, KeysOf(text, kBlockSize, RootHash(mine))).num_tokens, 8);
}

TEST_F(HostTierTest, AQuotaCountsBothTiersAndTheHostGivesFirst) {
  PrefixKeys keys = KeysOf(Iota(8), kBlockSize), more = KeysOf(Iota(8, 100), kBlockSize);
  keys.tenant = more.tenant = 1;
  blocks.SetTenantQuota(1, 3);
  Stored(blocks, Iota(8), keys);
  Flush();
  ASSERT_EQ(blocks.stats().host_used, 2);
  Stored(blocks, Iota(8, 100), more);
  EXPECT_EQ(blocks.stats().host_used, 1);
  EXPECT_EQ(Match(blocks, Iota(8), keys).num_tokens, 4);
  EXPECT_EQ(Match(blocks, Iota(8, 100), more).num_tokens, 8);
  EXPECT_EQ(blocks.DropTenant(1), 3);
  EXPECT_EQ(blocks.stats().host_used, 0);
}

TEST_F(HostTierTest, AFailedPlanLeavesNothingThatItsCopiesWereToFill) {
  Stored(blocks, Iota(8));
  Stored(blocks, Iota(4, 50));
  Flush();
  blocks.CopiesFailed(copies);  // out: nothing of it came there
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(Hit(blocks, Iota(8)) + Hit(blocks, Iota(4, 50)), 0);
  EXPECT_EQ(blocks.stats().host_used, 0);

  Stored(blocks, Iota(8));
  Flush();
  copies.clear();
  { const BlockTable table = Resume(Iota(8)); }
  blocks.CopiesFailed(copies);  // and in
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(Hit(blocks, Iota(8)), 0);
}

TEST_F(HostTierTest, WhoComputesWhatIsOnTheHostBringsItBackWithoutACopy) {
  PrefixKeys keys = KeysOf(Iota(8), kBlockSize);
  keys.read = false;
  Stored(blocks, Iota(8));
  Flush();
  copies.clear();
  ASSERT_EQ(blocks.stats().host_used, 2);
  const BlockTable table = Stored(blocks, Iota(8), keys);
  EXPECT_EQ(blocks.stats().host_used, 0);
  EXPECT_TRUE(blocks.IsFindable(table.blocks()[0]));
  EXPECT_EQ(Match(blocks, Iota(8), KeysOf(Iota(8), kBlockSize)).host_blocks, 0);
  EXPECT_TRUE(copies.empty());
}

TEST_F(HostTierTest, TwoThatFindTheSameBlockOnTheHostBothGetIt) {
  Stored(blocks, Iota(8));
  Flush();
  copies.clear();
  const PrefixKeys keys = KeysOf(Iota(8), kBlockSize);
  BlockTable a = blocks.NewTable(), b = blocks.NewTable();
  blocks.MatchPrefix(keys, Iota(8), 8, a);
  blocks.MatchPrefix(keys, Iota(8), 8, b);
  ASSERT_EQ(blocks.Reserve(a, 9, &copies), absl::OkStatus());
  ASSERT_EQ(blocks.Reserve(b, 9, &copies), absl::OkStatus());
  ASSERT_EQ(copies.size(), 4u);
  EXPECT_EQ(copies[0].src, copies[2].src);
  EXPECT_NE(copies[0].dst, copies[2].dst);
  EXPECT_TRUE(blocks.IsFindable(a.blocks()[0]));
  EXPECT_FALSE(blocks.IsFindable(b.blocks()[0]));
  EXPECT_EQ(blocks.stats().host_used, 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST_F(HostTierTest, NothingIsCopiedThatIsNotWorthIt) {
  Stored(blocks, Iota(8));
  blocks.SetHostUse({.max_demotions = 0});
  Flush();
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(Match(blocks, Iota(8), KeysOf(Iota(8), kBlockSize)).miss, MissReason::kEvicted);

  blocks.SetHostUse({});
  Stored(blocks, Iota(8));
  Flush();
  blocks.SetHostUse({.fetch = false});
  const PrefixMatch match = Match(blocks, Iota(8), KeysOf(Iota(8), kBlockSize));
  EXPECT_EQ(match.num_tokens, 0);
  EXPECT_EQ(match.miss, MissReason::kCopyNotWorth);
  blocks.SetHostUse({});
  EXPECT_EQ(Hit(blocks, Iota(8)), 8);

  copies.clear();
  blocks.SetHostUse({.max_demotions = 1});
  Stored(blocks, Iota(8, 400));
  Flush();
  Flush();
  EXPECT_EQ(copies.size(), 1u);
  blocks.SetHostUse({});

  // One that its holder keeps off the host, until it is used again.
  for (const bool used : {false, true}) {
    std::vector<int32_t> text = Iota(5, used ? 200 : 300);
    PrefixKeys keys = KeysOf(text, kBlockSize);
    {
      const BlockTable table = Stored(blocks, text, keys);
      blocks.KeepOffHost(table);
    }
    if (used) {
      BlockTable table = Resume(text, keys);
      text.push_back(0);
      blocks.Publish(table, text, 5, keys);
    }
    Flush();
    EXPECT_EQ(Hit(blocks, text), used ? 4 : 0);
  }
}

TEST_F(HostTierTest, ASwappedTableIsFoundByNobodyAndComesBackWhole) {
  const std::vector<int32_t> text = Iota(10);
  PrefixKeys keys = KeysOf(text, kBlockSize);
  keys.write = false;
  BlockTable table = Stored(blocks, text, keys);
  const std::vector<BlockId> before(table.blocks().begin(), table.blocks().end());
  ASSERT_TRUE(blocks.SwapOut(table, &copies));
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(blocks.num_unused(), kDevice);
  EXPECT_EQ(table.num_on_host(), 3);
  EXPECT_EQ(table.num_stored(), 10);
  EXPECT_EQ(blocks.BlocksMissing(table, 11), 3);
  EXPECT_EQ(Hit(blocks, text), 0);
  const std::vector<BlockCopy> out = std::exchange(copies, {});
  ASSERT_EQ(out.size(), 3u);

  ASSERT_EQ(blocks.Reserve(table, 11, &copies), absl::OkStatus());
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(blocks.stats().host_used, 0);
  ASSERT_EQ(copies.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copies[i].dst, table.blocks()[i]);
    EXPECT_TRUE(std::find(out.begin(), out.end(), BlockCopy{before[i], copies[i].src}) != out.end());
  }
}

class SmallHostTierTest : public HostTierTest {
 protected:
  SmallHostTierTest() : HostTierTest(2) {}
};

TEST_F(SmallHostTierTest, TheHostIsBoundedAndKeepsWhatIsWorthMost) {
  Stored(blocks, Iota(4));
  PrefixKeys pinned = KeysOf(Iota(4, 50), kBlockSize);
  ASSERT_EQ(pinned.retention.AddSpan(0, 4, 80), absl::OkStatus());
  Stored(blocks, Iota(4, 50), pinned);
  Flush();
  EXPECT_EQ(blocks.stats().host_used, 2);
  for (int32_t i = 0; i < 3; ++i) {  // each takes the place of the one before, none that of the pinned one
    Stored(blocks, Iota(4, 100 + 10 * i));
    Flush();
    EXPECT_EQ(blocks.stats().host_used, 2);
    EXPECT_EQ(Hit(blocks, Iota(4, 100 + 10 * i)), 4);
  }
  EXPECT_EQ(Hit(blocks, Iota(4, 50)), 4);
  EXPECT_EQ(Hit(blocks, Iota(4)), 0);
}

TEST_F(SmallHostTierTest, ATableThatDoesNotFitIsNotSwappedOut) {
  BlockTable table = Stored(blocks, Iota(10));
  EXPECT_FALSE(blocks.SwapOut(table, &copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(table.num_on_host(), 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  BlockTable small = Stored(blocks, Iota(6, 100));
  EXPECT_TRUE(blocks.SwapOut(small, &copies));
  BlockTable third = Stored(blocks, Iota(3, 200));
  EXPECT_FALSE(blocks.SwapOut(third, &copies)) << "what tables hold there stays";
}

}  // namespace
}  // namespace quire::testing
