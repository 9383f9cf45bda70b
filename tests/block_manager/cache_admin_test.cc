// Events, inspection, reasons of misses, integrity.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "block_manager/block_manager.h"
#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire::testing {
namespace {

TEST(KvEventsTest, BlocksAreReportedWhenTheyComeAndGo) {
  BlockManager blocks({.num_blocks = 4, .block_size = 2, .num_events = 100});
  const std::vector<int32_t> tokens = Iota(5);
  PrefixKeys keys = KeysOf(tokens, 2);
  {
    BlockTable table = Stored(blocks, tokens, keys);
    blocks.Seal(table, tokens, keys);  // a tail has no key: no event
  }
  const KvEventLog& events = blocks.events();
  ASSERT_EQ(events.next(), 2);
  EXPECT_EQ(events.Get(0).kind, KvEvent::Kind::kStored);
  EXPECT_EQ(events.Get(0).key, keys.blocks[0]);
  EXPECT_EQ(events.Get(0).parent, keys.root);
  EXPECT_EQ(events.Get(0).tokens, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(events.Get(1).parent, keys.blocks[0]);
  EXPECT_EQ(events.Get(1).tokens, (std::vector<int32_t>{2, 3}));
  Churn(blocks, 2);  // the tail and the second block
  ASSERT_EQ(events.next(), 3);
  EXPECT_EQ(events.Get(2).kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(events.Get(2).key, keys.blocks[1]);
  EXPECT_EQ(blocks.DropAll(), 1);
  ASSERT_EQ(events.next(), 5);
  EXPECT_EQ(events.Get(4).kind, KvEvent::Kind::kCleared);
}

TEST(KvEventsTest, AReaderThatIsTooSlowLearnsWhatItLost) {
  KvEventLog events(4, 1);
  EXPECT_EQ(events.first(), 0);
  for (int32_t i = 0; i < 10; ++i) events.Stored({static_cast<uint64_t>(i), 0}, {}, {i});
  EXPECT_EQ(events.first(), 6);
  EXPECT_EQ(events.next(), 10);
  for (int64_t n = 6; n < 10; ++n) {
    EXPECT_EQ(events.Get(n).key.low, static_cast<uint64_t>(n));
    EXPECT_EQ(events.Get(n).tokens[0], static_cast<int32_t>(n));
  }
  KvEventLog off(0, 1);
  off.Cleared();
  EXPECT_EQ(off.next(), 0);
}

// Whoever applies all events knows exactly the full blocks that can be found.
TEST(KvEventsTest, ReplayingTheEventsGivesTheFindableBlocks) {
  BlockManager blocks({.num_blocks = 9, .block_size = 2, .num_events = 1000});
  std::vector<BlockHash> known;
  int64_t next = 0;
  for (int32_t i = 0; i < 60; ++i) {
    const std::vector<int32_t> tokens = Iota(2 + i % 9, 10 * (i * 7 % 5));
    Stored(blocks, tokens).Clear();
    if (i % 20 == 19) blocks.DropAll();
    for (; next < blocks.events().next(); ++next) {
      const KvEvent event = blocks.events().Get(next);
      if (event.kind == KvEvent::Kind::kCleared) known.clear();
      if (event.kind == KvEvent::Kind::kRemoved) {
        EXPECT_EQ(std::erase(known, event.key), 1u);
      }
      if (event.kind == KvEvent::Kind::kStored) known.push_back(event.key);
    }
    EXPECT_EQ(static_cast<int32_t>(known.size()), blocks.stats().cached);
    const PrefixKeys keys = KeysOf(tokens, 2);
    for (int32_t b = 0; b < Hit(blocks, tokens) / 2; ++b) {
      EXPECT_EQ(std::count(known.begin(), known.end(), keys.blocks[b]), 1);
    }
  }
}

TEST(MissReasonTest, SaysWhereAndWhyTheMatchEnded) {
  BlockManager blocks({.num_blocks = 9, .block_size = 4, .min_partial_tokens = 2});
  blocks.AdvanceTime(kStart);
  const std::vector<int32_t> tokens = Iota(12);
  const PrefixKeys keys = KeysOf(tokens, 4);
  const auto match = [&](const std::vector<int32_t>& wanted, const PrefixKeys& k) { return Match(blocks, wanted, k); };
  EXPECT_EQ(match(tokens, keys).miss, MissReason::kNeverSeen);
  Stored(blocks, tokens, keys).Clear();
  EXPECT_EQ(match(tokens, keys).miss, MissReason::kNone);

  const std::vector<int32_t> differs = {0, 1, 2, 3, 4, 9, 9, 9, 9};
  EXPECT_EQ(match(differs, KeysOf(differs, 4)).miss, MissReason::kCopyNotWorth);
  EXPECT_EQ(match(differs, KeysOf(differs, 4)).missed_block, 1);
  EXPECT_EQ(match(differs, KeysOf(differs, 4)).num_tokens, 4);
  const std::vector<int32_t> shorter = Iota(5);
  EXPECT_EQ(match(shorter, KeysOf(shorter, 4)).miss, MissReason::kUnderMinimum);

  EXPECT_EQ(match(tokens, KeysOf(tokens, 4, {7, 7})).miss, MissReason::kOtherRoot);
  PrefixKeys foreign = KeysOf(tokens, 4, {7, 7});
  foreign.tenant = 2;
  EXPECT_EQ(match(tokens, foreign).miss, MissReason::kNeverSeen) << "tenants learn nothing of each other";
  PrefixKeys bypass = keys;
  bypass.read = false;
  EXPECT_EQ(match(tokens, bypass).miss, MissReason::kBypassed);

  blocks.AdvanceTime(kStart + absl::Seconds(5));
  Churn(blocks, 6);  // one of three goes
  const PrefixMatch evicted = match(tokens, keys);
  EXPECT_EQ(evicted.num_tokens, 8);
  EXPECT_EQ(evicted.miss, MissReason::kEvicted);
  EXPECT_EQ(evicted.missed_block, 2);
  EXPECT_EQ(evicted.evicted_at, kStart + absl::Seconds(5));

  BlockManager off({.num_blocks = 9, .block_size = 4, .enable_prefix_cache = false});
  EXPECT_EQ(Match(off, tokens, keys).miss, MissReason::kCacheOff);
}

TEST(BypassTest, ARequestThatDoesNotWriteLeavesNothing) {
  BlockManager blocks({.num_blocks = 9, .block_size = 4});
  const std::vector<int32_t> tokens = Iota(10);
  PrefixKeys keys = KeysOf(tokens, 4);
  keys.write = false;
  BlockTable table = Stored(blocks, tokens, keys);
  blocks.Seal(table, tokens, keys);
  table.Clear();
  EXPECT_EQ(blocks.stats().cached, 0);
  EXPECT_EQ(Hit(blocks, tokens), 0);
}

TEST(InspectionTest, ListsEachChainOnce) {
  BlockManager blocks({.num_blocks = 20, .block_size = 2});
  blocks.AdvanceTime(kStart);
  const std::vector<int32_t> a = {1, 2, 3, 4, 5}, b = {1, 2, 7, 8}, c = {9};
  PrefixKeys a_keys = KeysOf(a, 2), b_keys = KeysOf(b, 2), c_keys = KeysOf(c, 2, {5, 5});
  b_keys.tenant = 4;
  ASSERT_TRUE(c_keys.retention.AddSpan(0, 1, 90, absl::Hours(1)).ok());
  BlockTable a_table = Stored(blocks, a, a_keys);
  blocks.Seal(a_table, a, a_keys);
  a_table.Clear();
  blocks.AdvanceTime(kStart + absl::Seconds(9));
  BlockTable b_table = blocks.NewTable();
  ASSERT_EQ(blocks.MatchPrefix(b_keys, b, 3, b_table).num_tokens, 2);
  ASSERT_TRUE(blocks.Reserve(b_table, 4).ok());
  blocks.Publish(b_table, b, 4, b_keys);
  BlockTable c_table = Stored(blocks, c, c_keys);
  blocks.Seal(c_table, c, c_keys);
  c_table.Clear();
  std::vector<PrefixInfo> list = blocks.ListPrefixes();
  std::sort(list.begin(), list.end(),
            [](const PrefixInfo& x, const PrefixInfo& y) { return x.num_tokens > y.num_tokens; });
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].num_tokens, 5);
  EXPECT_EQ(list[0].key, a_keys.blocks[1]);
  EXPECT_EQ(list[0].root, a_keys.root);
  EXPECT_EQ(list[0].head_hits, 1);
  EXPECT_EQ(list[0].num_hits, 0);
  EXPECT_EQ(list[0].last_used, kStart);
  EXPECT_FALSE(list[0].in_use);
  EXPECT_EQ(list[1].num_tokens, 4);
  EXPECT_EQ(list[1].tenant, 4);
  EXPECT_TRUE(list[1].in_use);
  EXPECT_EQ(list[2].num_tokens, 1);
  EXPECT_EQ(list[2].key, c_keys.root);
  EXPECT_EQ(list[2].priority, 90);
  EXPECT_EQ(list[2].expires, kStart + absl::Seconds(9) + absl::Hours(1));
}

TEST(InspectionTest, DropsPrefixesToTheToken) {
  BlockManager blocks({.num_blocks = 30, .block_size = 4});
  const std::vector<int32_t> a = Iota(16);
  std::vector<int32_t> b = Iota(10), c = Iota(16, 50);
  b.resize(16, 99);  // parts from `a` inside its third block
  const auto store = [&] {
    for (const auto& tokens : {a, b, c}) Stored(blocks, tokens).Clear();
  };
  store();
  EXPECT_EQ(blocks.stats().cached, 10);
  EXPECT_EQ(blocks.DropPrefix({3, 4}, Iota(11)), 2);
  EXPECT_EQ(Hit(blocks, a), 10) << "up to where both agree";
  EXPECT_EQ(Hit(blocks, b), 16);
  store();
  EXPECT_EQ(blocks.DropPrefix({3, 4}, Iota(9)), 4);
  EXPECT_EQ(Hit(blocks, a), 8);
  store();
  EXPECT_EQ(blocks.DropPrefix({3, 4}, Iota(4)), 6);
  EXPECT_EQ(Hit(blocks, c), 16);
  EXPECT_EQ(blocks.DropPrefix({3, 4}, Iota(40)), 0);
  EXPECT_EQ(blocks.DropPrefix({9, 9}, Iota(4, 50)), 0);
  EXPECT_EQ(blocks.DropPrefix({3, 4}, {}), 4);
  EXPECT_EQ(blocks.stats().cached, 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(InspectionTest, DropsATenantWithWhatLiesBehind) {
  BlockManager blocks({.num_blocks = 30, .block_size = 2});
  const std::vector<int32_t> a = Iota(4), b = Iota(8), c = Iota(4, 50);
  PrefixKeys a_keys = KeysOf(a, 2), b_keys = KeysOf(b, 2);
  a_keys.tenant = 1;
  b_keys.tenant = 2;
  Stored(blocks, a, a_keys).Clear();
  Stored(blocks, b, b_keys).Clear();
  Stored(blocks, c).Clear();
  EXPECT_EQ(blocks.DropTenant(2), 2);
  EXPECT_EQ(Hit(blocks, b), 4);
  Stored(blocks, b, b_keys).Clear();
  EXPECT_EQ(blocks.DropTenant(1), 4);
  EXPECT_EQ(Hit(blocks, b), 0);
  EXPECT_EQ(Hit(blocks, c), 4);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(InspectionTest, ResetWhileTablesLiveLeavesThemTheirBlocksAndNothingOfThemComesBack) {
  BlockManager blocks({.num_blocks = 30, .block_size = 2});
  const std::vector<int32_t> tokens = Iota(12);
  PrefixKeys keys = KeysOf(tokens, 2);
  BlockTable running = Stored(blocks, {0, 1, 2, 3, 4}, keys);
  Stored(blocks, Iota(6, 50)).Clear();
  const std::vector<BlockId> before(running.blocks().begin(), running.blocks().end());
  EXPECT_EQ(blocks.DropAll(), 5);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(running.blocks(), before);
  EXPECT_EQ(blocks.stats().active, 3);
  ASSERT_TRUE(blocks.Reserve(running, 12).ok());
  blocks.Publish(running, tokens, 12, keys);
  blocks.Seal(running, tokens, keys);
  BlockTable fork = blocks.Fork(running, 8);
  blocks.Publish(fork, tokens, 8, keys);
  EXPECT_EQ(Hit(blocks, tokens), 0) << "what was computed before the reset";
  running.Clear();
  EXPECT_EQ(Stored(blocks, tokens, keys).num_published(), 6);
}

TEST(IntegrityTest, SealedBlocksAreCheckedWhenFoundAndFreedOnesPoisoned) {
  BlockManager blocks({.num_blocks = 10, .block_size = 4, .integrity = true});
  const std::vector<int32_t> tokens = Iota(6), longer = Iota(7);
  PrefixKeys keys = KeysOf(tokens, 4);
  BlockTable owner = Stored(blocks, tokens, keys);
  blocks.Seal(owner, tokens, keys);
  const BlockId full = owner.blocks()[0], tail = owner.blocks()[1];
  IntegrityWork work;
  blocks.TakeIntegrityWork(&work);
  EXPECT_EQ(work.checksums, (std::vector<IntegrityWork::Item>{{full, 4}, {tail, 2}}));
  EXPECT_TRUE(work.verify.empty() && work.poison.empty());
  blocks.EndIntegrityWork(work, /*failed=*/false);

  PrefixKeys longer_keys = KeysOf(longer, 4);
  BlockTable table = blocks.NewTable();
  std::vector<BlockCopy> copies;
  ASSERT_EQ(blocks.MatchPrefix(longer_keys, longer, 6, table).num_tokens, 6);
  ASSERT_TRUE(blocks.Reserve(table, 7, &copies).ok());
  blocks.TakeIntegrityWork(&work);
  EXPECT_EQ(work.verify, (std::vector<IntegrityWork::Item>{{full, 4}, {tail, 2}}));
  EXPECT_TRUE(work.checksums.empty() && work.poison.empty());

  const BlockId copied = table.blocks()[1];
  table.Clear();
  blocks.TakeIntegrityWork(&work);
  EXPECT_EQ(work.poison, std::vector<BlockId>{copied});
  blocks.TakeIntegrityWork(&work);
  EXPECT_TRUE(work.empty());
  owner.Clear();
  blocks.DropAll();
  blocks.TakeIntegrityWork(&work);
  EXPECT_EQ(work.poison.size(), 2u);
}

// A step that fails may not have kept the checksums that it was to keep: nobody may be compared with them.
TEST(IntegrityTest, ChecksumsOfAStepThatFailedAreAskedForAgain) {
  BlockManager blocks({.num_blocks = 10, .block_size = 4, .integrity = true});
  const std::vector<int32_t> tokens = Iota(8), other = Iota(4, 50);
  const BlockTable owner = Stored(blocks, tokens), gone = Stored(blocks, other);
  const IntegrityWork::Item first = {owner.blocks()[0], 4}, second = {owner.blocks()[1], 4};
  IntegrityWork failed, later;
  blocks.TakeIntegrityWork(&failed);
  ASSERT_EQ(failed.checksums.size(), 3u);
  EXPECT_EQ(Hit(blocks, tokens), 8);  // the step is in flight: there is nothing to compare with yet
  blocks.TakeIntegrityWork(&later);
  EXPECT_TRUE(later.empty());
  blocks.EndIntegrityWork(later, /*failed=*/false);
  EXPECT_EQ(blocks.DropPrefix({3, 4}, other), 1);
  blocks.EndIntegrityWork(failed, /*failed=*/true);
  EXPECT_EQ(Hit(blocks, tokens), 8);
  blocks.TakeIntegrityWork(&later);
  EXPECT_EQ(later.checksums, (std::vector<IntegrityWork::Item>{first, second}));
  EXPECT_TRUE(later.verify.empty());
  blocks.EndIntegrityWork(later, /*failed=*/false);
  EXPECT_EQ(Hit(blocks, tokens), 8);
  blocks.TakeIntegrityWork(&later);
  EXPECT_EQ(later.verify, (std::vector<IntegrityWork::Item>{first, second}));
}

}  // namespace
}  // namespace quire::testing
