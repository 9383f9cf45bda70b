#include "block_manager/retention.h"

#include <vector>

#include "block_manager/block_manager.h"
#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire::testing {
namespace {

PrefixKeys Kept(const std::vector<int32_t>& tokens, int32_t block_size, int32_t priority,
                absl::Duration ttl = absl::InfiniteDuration()) {
  PrefixKeys keys = KeysOf(tokens, block_size);
  EXPECT_EQ(keys.retention.AddSpan(0, INT32_MAX, priority, ttl), absl::OkStatus());
  return keys;
}

TEST(RetentionTest, RefusesWhatMakesNoSenseAndSaysWhy) {
  Retention retention;
  EXPECT_EQ(retention.AddSpan(-1, 5, 50).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(retention.AddSpan(5, 5, 50).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(retention.AddSpan(0, 5, 101).message().find("101, allowed are 0 to 100"), std::string_view::npos);
  EXPECT_EQ(retention.AddSpan(0, 5, -1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(retention.AddSpan(0, 5, 50, absl::ZeroDuration()).code(), absl::StatusCode::kInvalidArgument);
  for (int i = 0; i < Retention::kMaxBreakpoints; ++i) {
    EXPECT_EQ(retention.AddBreakpoint(10 + i, absl::Minutes(5)), absl::OkStatus());
  }
  EXPECT_EQ(retention.AddBreakpoint(20, absl::Minutes(5)).code(), absl::StatusCode::kResourceExhausted);
  for (int i = Retention::kMaxBreakpoints; i < Retention::kMaxSpans; ++i) {
    EXPECT_EQ(retention.AddSpan(0, 5, 50), absl::OkStatus());
  }
  EXPECT_EQ(retention.AddSpan(0, 5, 50).code(), absl::StatusCode::kResourceExhausted);
}

TEST(RetentionTest, TheStrongestSpanThatTouchesABlockHolds) {
  Retention retention;
  ASSERT_TRUE(retention.AddSpan(10, 20, 10).ok());
  ASSERT_TRUE(retention.AddSpan(18, 30, 60, absl::Minutes(5)).ok());
  ASSERT_TRUE(retention.AddSpan(28, 40, 60, absl::Hours(1)).ok());
  EXPECT_EQ(retention.For(0, 10).priority, kDefaultRetention);
  EXPECT_EQ(retention.For(8, 16).priority, 10);
  EXPECT_EQ(retention.For(16, 24).priority, 60);
  EXPECT_EQ(retention.For(16, 24).ttl, absl::Minutes(5));
  EXPECT_EQ(retention.For(24, 32).ttl, absl::Hours(1));
  EXPECT_EQ(retention.For(40, 48).priority, kDefaultRetention);
}

TEST(RetentionTest, HigherPrioritiesStayLonger) {
  for (const EvictionPolicy policy : {EvictionPolicy::kCost, EvictionPolicy::kLru}) {
    BlockManager blocks({.num_blocks = 7, .block_size = 2, .eviction = {.policy = policy}});
    const std::vector<int32_t> low = Iota(4, 10), normal = Iota(4, 20), high = Iota(4, 30);
    Stored(blocks, high, Kept(high, 2, 90)).Clear();
    Stored(blocks, normal).Clear();
    Stored(blocks, low, Kept(low, 2, 5)).Clear();
    Churn(blocks, 2);
    EXPECT_EQ(Hit(blocks, low), 0);
    Churn(blocks, 4);  // 2 are free
    EXPECT_EQ(Hit(blocks, normal), 0);
    EXPECT_EQ(Hit(blocks, high), 4);
    Churn(blocks, 6);  // running work takes all
    EXPECT_EQ(Hit(blocks, high), 0);
  }
}

// A burst of low priority does not flush what is worth more, however much comes.
TEST(RetentionTest, ABurstOfLowPriorityFlushesItselfOnly) {
  BlockManager blocks({.num_blocks = 9, .block_size = 2});
  const std::vector<int32_t> kept = Iota(6);
  Stored(blocks, kept).Clear();
  for (int32_t i = 0; i < 20; ++i) {
    const std::vector<int32_t> burst = Iota(8, 100 * (i + 1));
    Stored(blocks, burst, Kept(burst, 2, 0)).Clear();
  }
  EXPECT_EQ(Hit(blocks, kept), 6);
}

TEST(RetentionTest, ATailOfHighPriorityKeepsItsHead) {
  BlockManager blocks({.num_blocks = 7, .block_size = 2});
  const std::vector<int32_t> tokens = Iota(6), other = Iota(6, 50);
  PrefixKeys keys = KeysOf(tokens, 2);
  ASSERT_TRUE(keys.retention.AddSpan(0, 2, 0).ok());
  ASSERT_TRUE(keys.retention.AddSpan(4, 6, 100).ok());
  Stored(blocks, tokens, keys).Clear();
  Stored(blocks, other).Clear();
  Churn(blocks, 3);
  EXPECT_EQ(Hit(blocks, other), 0);
  EXPECT_EQ(Hit(blocks, tokens), 6);
}

TEST(RetentionTest, AnExpiredTtlFallsBackToTheDefaultAndGoesFirst) {
  BlockManager blocks({.num_blocks = 5, .block_size = 2});
  blocks.AdvanceTime(kStart);
  const std::vector<int32_t> marked = Iota(4), normal = Iota(4, 20);
  PrefixKeys keys = KeysOf(marked, 2);
  ASSERT_TRUE(keys.retention.AddBreakpoint(4, absl::Minutes(5)).ok());
  Stored(blocks, normal).Clear();
  Stored(blocks, marked, keys).Clear();
  EXPECT_EQ(blocks.stats().pinned, 2);
  blocks.AdvanceTime(kStart + absl::Minutes(5) - absl::Seconds(1));
  EXPECT_EQ(blocks.stats().pinned, 2);
  blocks.AdvanceTime(kStart + absl::Minutes(5));
  EXPECT_EQ(blocks.stats().pinned, 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  Churn(blocks, 2);
  EXPECT_EQ(Hit(blocks, marked), 0);  // though used later
  EXPECT_EQ(Hit(blocks, normal), 4);
}

TEST(RetentionTest, EachUseBeginsTheTtlAgain) {
  BlockManager blocks({.num_blocks = 9, .block_size = 2});
  blocks.AdvanceTime(kStart);
  const std::vector<int32_t> tokens = Iota(5);
  PrefixKeys keys = KeysOf(tokens, 2);
  ASSERT_TRUE(keys.retention.AddBreakpoint(4, absl::Minutes(5)).ok());
  Stored(blocks, {0, 1, 2, 3}, keys).Clear();
  blocks.AdvanceTime(kStart + absl::Minutes(4));
  {
    PrefixKeys plain = KeysOf(tokens, 2);
    BlockTable table = blocks.NewTable();
    ASSERT_EQ(blocks.MatchPrefix(plain, tokens, 5, table).num_tokens, 4);
    ASSERT_TRUE(blocks.Reserve(table, 5).ok());
    blocks.Publish(table, tokens, 5, plain);
  }
  blocks.AdvanceTime(kStart + absl::Minutes(8));
  EXPECT_EQ(blocks.stats().pinned, 2);
  EXPECT_EQ(blocks.ListPrefixes().at(0).expires, kStart + absl::Minutes(9));
  EXPECT_EQ(blocks.ListPrefixes().at(0).num_hits, 1);
  blocks.AdvanceTime(kStart + absl::Minutes(9));
  EXPECT_EQ(blocks.stats().pinned, 0);
}

TEST(RetentionTest, ThePinnedShareIsCappedAndReportedAndNeverStarvesRunningWork) {
  BlockManager blocks({.num_blocks = 11, .block_size = 2, .eviction = {.max_pinned_share = 0.3}});
  EXPECT_EQ(blocks.stats().max_pinned, 3);
  const std::vector<int32_t> tokens = Iota(10), other = Iota(4, 50);
  Stored(blocks, tokens, Kept(tokens, 2, 100)).Clear();
  EXPECT_EQ(blocks.stats().pinned, 3);
  EXPECT_EQ(blocks.stats().pins_refused, 2);
  Stored(blocks, other, Kept(other, 2, 100)).Clear();
  EXPECT_EQ(blocks.stats().pins_refused, 4);
  BlockTable running = blocks.NewTable();
  EXPECT_TRUE(blocks.Reserve(running, 14).ok());
  EXPECT_EQ(blocks.stats().pinned, 3);
  EXPECT_EQ(Hit(blocks, tokens), 6);
  EXPECT_TRUE(blocks.Reserve(running, 20).ok());
  EXPECT_EQ(blocks.stats().pinned, 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(EvictionTest, AmongEqualsWhatWasHitOftenOutlivesNewerBlocks) {
  const auto survives = [](EvictionPolicy policy) {
    BlockManager blocks({.num_blocks = 9, .block_size = 2, .eviction = {.policy = policy}});
    const std::vector<int32_t> popular = Iota(5);
    Stored(blocks, {0, 1, 2, 3}).Clear();
    for (int i = 0; i < 5; ++i) {
      PrefixKeys keys = KeysOf(popular, 2);
      BlockTable table = blocks.NewTable();
      EXPECT_EQ(blocks.MatchPrefix(keys, popular, 4, table).num_tokens, 4);
      EXPECT_TRUE(blocks.Reserve(table, 5).ok());
      blocks.Publish(table, popular, 5, keys);
    }
    for (int32_t i = 1; i <= 3; ++i) Stored(blocks, Iota(8, 100 * i)).Clear();  // 12 blocks, each used once
    return Hit(blocks, popular) == 4;
  };
  EXPECT_TRUE(survives(EvictionPolicy::kCost));
  EXPECT_FALSE(survives(EvictionPolicy::kLru));
}

TEST(EvictionTest, WhatIsNoLongerHitGoesInTheEnd) {
  BlockManager blocks({.num_blocks = 9, .block_size = 2});
  const std::vector<int32_t> popular = Iota(5);
  Stored(blocks, {0, 1, 2, 3}).Clear();
  for (int i = 0; i < 5; ++i) {
    PrefixKeys keys = KeysOf(popular, 2);
    BlockTable table = blocks.NewTable();
    ASSERT_EQ(blocks.MatchPrefix(keys, popular, 4, table).num_tokens, 4);
    ASSERT_TRUE(blocks.Reserve(table, 5).ok());
    blocks.Publish(table, popular, 5, keys);
  }
  for (int32_t i = 1; i <= 20; ++i) Stored(blocks, Iota(8, 100 * i)).Clear();
  EXPECT_EQ(Hit(blocks, popular), 0);
}

TEST(EvictionTest, ADeepBlockIsWorthMoreThanAShallowOne) {
  // Equal but for the depth of their last blocks; the deep one was let go first.
  BlockManager blocks({.num_blocks = 9, .block_size = 2, .eviction = {.attention_equal_tokens = 2}});
  const std::vector<int32_t> deep = Iota(12), shallow = Iota(4, 50);
  Stored(blocks, deep).Clear();
  Stored(blocks, shallow).Clear();
  Churn(blocks, 1);
  EXPECT_EQ(Hit(blocks, deep), 12);
  EXPECT_EQ(Hit(blocks, shallow), 2);
}

TEST(EvictionTest, WhatAQueuedRequestWillHitIsSpared) {
  for (const EvictionPolicy policy : {EvictionPolicy::kCost, EvictionPolicy::kLru}) {
    BlockManager blocks({.num_blocks = 9, .block_size = 2, .eviction = {.policy = policy}});
    const std::vector<int32_t> first = Iota(8), second = Iota(8, 50);
    Stored(blocks, first).Clear();
    Stored(blocks, second).Clear();
    const PrefixKeys keys = KeysOf(first, 2);
    blocks.Spare(keys.root, keys.blocks, first);
    Churn(blocks, 4);
    EXPECT_EQ(Hit(blocks, first), 8);
    EXPECT_EQ(Hit(blocks, second), 0);
    blocks.Spare({9, 9}, keys.blocks, first);  // nothing is there
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  }
}

TEST(TenantQuotaTest, ATenantNeverHoldsMoreFindableBlocksThanItsQuota) {
  BlockManager blocks({.num_blocks = 21, .block_size = 2});
  blocks.SetTenantQuota(1, 4);
  const std::vector<int32_t> other = Iota(8, 500);
  PrefixKeys other_keys = KeysOf(other, 2);
  other_keys.tenant = 2;
  Stored(blocks, other, other_keys).Clear();
  const auto findable = [&] { return blocks.stats().cached - 4; };
  for (int32_t i = 0; i < 5; ++i) {
    const std::vector<int32_t> tokens = Iota(6, 10 * i);
    PrefixKeys keys = KeysOf(tokens, 2, {3, 7});
    keys.tenant = 1;
    Stored(blocks, tokens, keys).Clear();
    EXPECT_LE(findable(), 4);
    EXPECT_EQ(Match(blocks, tokens, keys).num_tokens, 6);  // its older ones went
  }
  EXPECT_EQ(Hit(blocks, other), 8);

  // While all that it holds is in use, nothing more is published.
  const std::vector<int32_t> longer = Iota(14, 300);
  PrefixKeys keys = KeysOf(longer, 2, {3, 7});
  keys.tenant = 1;
  const BlockTable running = Stored(blocks, longer, keys);
  EXPECT_EQ(running.num_published(), 4);
  EXPECT_EQ(findable(), 0);
  blocks.SetTenantQuota(1, 2);
  EXPECT_EQ(Match(blocks, longer, keys).num_tokens, 8) << "blocks in use stay";
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  blocks.SetTenantQuota(1, -1);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(TenantQuotaTest, ALowerQuotaTakesEffectAtOnceOnWhatIsUnused) {
  BlockManager blocks({.num_blocks = 21, .block_size = 2});
  const std::vector<int32_t> tokens = Iota(12);
  PrefixKeys keys = KeysOf(tokens, 2);
  keys.tenant = 3;
  Stored(blocks, tokens, keys).Clear();
  blocks.SetTenantQuota(3, 2);
  EXPECT_EQ(blocks.stats().cached, 2);
  EXPECT_EQ(Match(blocks, tokens, keys).num_tokens, 4);
  blocks.SetTenantQuota(3, 0);
  EXPECT_EQ(blocks.stats().cached, 0);
  EXPECT_EQ(Stored(blocks, tokens, keys).num_published(), 0);
}

}  // namespace
}  // namespace quire::testing
