// What holds for a block on the device holds on the host: retention, ttl, pins, salts, tenants, drops; with and without
// layer groups.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire::testing {
namespace {

constexpr int32_t kBlockSize = 4, kDevice = 12;

BlockManagerOptions Options(bool groups, int32_t host) {
  BlockManagerOptions options;
  options.num_blocks = kDevice + 1;
  options.block_size = kBlockSize;
  options.integrity = true;
  options.num_host_blocks = host;
  if (!groups) return options;
  options.group_windows = {0, 8};
  options.num_pages = options.num_blocks;
  options.num_host_pages = options.num_host_blocks;
  return options;
}

class HostRetentionTest : public ::testing::TestWithParam<bool> {
 protected:
  explicit HostRetentionTest(int32_t host = 20) : blocks(Options(GetParam(), host)) { blocks.AdvanceTime(kStart); }

  static PrefixKeys Pinned(const std::vector<int32_t>& tokens, absl::Duration ttl = absl::InfiniteDuration()) {
    PrefixKeys keys = KeysOf(tokens, kBlockSize);
    EXPECT_EQ(keys.retention.AddSpan(0, INT32_MAX, 80, ttl), absl::OkStatus());
    return keys;
  }

  // A table that has computed all of `tokens` but what it found.
  BlockTable Store(const std::vector<int32_t>& tokens, PrefixKeys keys) {
    const auto size = static_cast<int32_t>(tokens.size());
    BlockTable table = blocks.NewTable();
    match = blocks.MatchPrefix(keys, tokens, size - 1, table);
    EXPECT_EQ(blocks.Reserve(table, size, &copies), absl::OkStatus());
    EXPECT_EQ(blocks.ReserveStep(table, size, &copies), size);
    blocks.Publish(table, tokens, size, keys);
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
    return table;
  }
  BlockTable Store(const std::vector<int32_t>& tokens) { return Store(tokens, KeysOf(tokens, kBlockSize)); }

  // Takes all there is on the device and gives it back: what was cached there is on the host, or gone.
  void Flush() {
    BlockTable hog = blocks.NewTable();
    int32_t tokens = 0;
    while (blocks.BlocksMissing(hog, tokens + kBlockSize) <= blocks.num_unused()) tokens += kBlockSize;
    ASSERT_EQ(blocks.Reserve(hog, tokens, &copies), absl::OkStatus());
    ASSERT_EQ(blocks.num_unused(), 0);
    ASSERT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  }

  PrefixInfo OnlyPrefix() const {
    const std::vector<PrefixInfo> prefixes = blocks.ListPrefixes();
    EXPECT_EQ(prefixes.size(), 1u);
    return prefixes.empty() ? PrefixInfo() : prefixes[0];
  }

  BlockManager blocks;
  std::vector<BlockCopy> copies;
  PrefixMatch match;
};

TEST_P(HostRetentionTest, PriorityAndTtlMoveAlongAndTheTtlRunsOn) {
  const std::vector<int32_t> text = Iota(8);
  Store(text, Pinned(text, absl::Seconds(10)));
  blocks.AdvanceTime(kStart + absl::Seconds(4));
  Flush();
  EXPECT_TRUE(OnlyPrefix().on_host);
  EXPECT_EQ(OnlyPrefix().priority, 80);
  EXPECT_EQ(OnlyPrefix().expires, kStart + absl::Seconds(10));
  EXPECT_EQ(OnlyPrefix().last_used, kStart);
  blocks.AdvanceTime(kStart + absl::Seconds(10));
  EXPECT_EQ(OnlyPrefix().priority, kDefaultRetention);
  EXPECT_EQ(blocks.stats().pinned, 0);
  EXPECT_EQ(Hit(blocks, text), 8) << "it has lost its rank, not its contents";
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST_P(HostRetentionTest, AHitOnTheHostBeginsTheTtlAgain) {
  std::vector<int32_t> text = Iota(8);
  Store(text, Pinned(text, absl::Seconds(10)));
  Flush();
  blocks.AdvanceTime(kStart + absl::Seconds(6));
  text.push_back(99);
  Store(text, Pinned(text, absl::Seconds(10))).Clear();
  EXPECT_EQ(match.num_tokens, 8);
  EXPECT_EQ(match.host_blocks, 2);
  EXPECT_FALSE(OnlyPrefix().on_host);
  EXPECT_EQ(OnlyPrefix().priority, 80);
  EXPECT_EQ(OnlyPrefix().expires, kStart + absl::Seconds(16));
}

TEST_P(HostRetentionTest, PinsOnBothTiersCountAgainstTheCap) {
  const int32_t most = blocks.stats().max_pinned;
  ASSERT_EQ(most, kDevice / 2);
  const std::vector<int32_t> first = Iota((most - 1) * kBlockSize), second = Iota(3 * kBlockSize, 500);
  Store(first, Pinned(first));
  Flush();
  EXPECT_EQ(blocks.stats().pinned, most - 1);
  EXPECT_EQ(blocks.stats().pins_refused, 0);
  Store(second, Pinned(second));
  EXPECT_EQ(blocks.stats().pinned, most);
  EXPECT_EQ(blocks.stats().pins_refused, 2);
  Flush();
  EXPECT_EQ(blocks.stats().pinned, most);
  EXPECT_EQ(blocks.DropPrefix({3, 4}, absl::MakeConstSpan(first).first(kBlockSize)), most - 1);
  EXPECT_EQ(blocks.stats().pinned, 1);
}

TEST_P(HostRetentionTest, SaltsAndTenantsDoNotMeetThere) {
  const std::vector<int32_t> text = Iota(8);
  KeyContext mine, salted, theirs;
  mine.tenant = salted.tenant = "a";
  salted.salt = "s";
  theirs.tenant = "b";
  Store(text, KeysOf(text, kBlockSize, RootHash(mine)));
  Flush();
  ASSERT_GE(blocks.stats().host_used, 2);
  for (const KeyContext* other : {&salted, &theirs}) {
    EXPECT_EQ(Match(blocks, text, KeysOf(text, kBlockSize, RootHash(*other))).num_tokens, 0);
  }
  EXPECT_EQ(Match(blocks, text, KeysOf(text, kBlockSize, RootHash(mine))).num_tokens, 8);
}

TEST_P(HostRetentionTest, AQuotaCountsBothTiers) {
  PrefixKeys keys = KeysOf(Iota(8), kBlockSize), more = KeysOf(Iota(8, 100), kBlockSize);
  keys.tenant = more.tenant = 1;
  blocks.SetTenantQuota(1, 3);
  Store(Iota(8), keys);
  Flush();
  Store(Iota(8, 100), more);
  EXPECT_EQ(Match(blocks, Iota(8, 100), more).num_tokens, 8);
  EXPECT_EQ(blocks.DropTenant(1), 3);
  EXPECT_EQ(blocks.stats().host_used, 0);
}

TEST_P(HostRetentionTest, DropsAndResetsReachTheHost) {
  const std::vector<int32_t> text = Iota(12), other = Iota(8, 100);
  for (int kind = 0; kind < 3; ++kind) {
    SCOPED_TRACE(kind);
    PrefixKeys keys = KeysOf(text, kBlockSize);
    keys.tenant = 1;
    Store(text, keys);
    Store(other);
    Flush();
    ASSERT_EQ(Match(blocks, text, keys).host_blocks, 3);
    if (kind == 0) {
      EXPECT_EQ(blocks.DropPrefix(keys.root, absl::MakeConstSpan(text).first(6)), 2) << "the first block is shared";
      EXPECT_EQ(blocks.DropPrefix(keys.root, absl::MakeConstSpan(text).first(4)), 1);
    } else if (kind == 1) {
      EXPECT_EQ(blocks.DropTenant(1), 3);
    } else {
      EXPECT_EQ(blocks.DropAll(), 5);
    }
    EXPECT_EQ(Hit(blocks, text), 0);
    EXPECT_EQ(Hit(blocks, other), kind == 2 ? 0 : 8);
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  }
  EXPECT_EQ(blocks.stats().host_used, 0);
}

// One that found a prefix on the host goes on with it if the cache is reset before its copies are made, and publishes
// nothing.
TEST_P(HostRetentionTest, AResetBetweenMatchAndReserveTakesNothingFromWhoFoundIt) {
  std::vector<int32_t> text = Iota(8);
  Store(text);
  Flush();
  text.push_back(99);
  PrefixKeys keys = KeysOf(text, kBlockSize);
  BlockTable table = blocks.NewTable();
  ASSERT_EQ(blocks.MatchPrefix(keys, text, 8, table).host_blocks, 2);
  EXPECT_EQ(blocks.DropAll(), 2);
  copies.clear();
  ASSERT_EQ(blocks.Reserve(table, 9, &copies), absl::OkStatus());
  EXPECT_EQ(copies.size(), GetParam() ? 4u : 2u);
  EXPECT_EQ(blocks.stats().host_used, 0);
  blocks.Publish(table, text, 9, keys);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(Hit(blocks, text), 0);
}

TEST_P(HostRetentionTest, NoDropTakesWhatASwappedTableHolds) {
  const std::vector<int32_t> text = Iota(10);
  PrefixKeys keys = KeysOf(text, kBlockSize);
  keys.write = false;
  BlockTable table = Store(text, keys);
  ASSERT_TRUE(blocks.SwapOut(table, &copies));
  EXPECT_EQ(blocks.num_unused(), kDevice);
  blocks.DropAll();
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(table.num_on_host(), 3);
  copies.clear();
  ASSERT_EQ(blocks.Reserve(table, 11, &copies), absl::OkStatus());
  EXPECT_EQ(copies.size(), GetParam() ? 6u : 3u);
  EXPECT_EQ(blocks.stats().host_used, 0);
}

class SmallHostRetentionTest : public HostRetentionTest {
 protected:
  SmallHostRetentionTest() : HostRetentionTest(4) {}
};

TEST_P(SmallHostRetentionTest, APinOutlivesFloodsUntilItsTtlHasPassed) {
  const std::vector<int32_t> text = Iota(8);
  Store(text, Pinned(text, absl::Seconds(10)));
  const auto flood = [&] {
    for (int32_t i = 1; i <= 4; ++i) {
      Store(Iota(8, 1000 * i));
      Flush();
    }
  };
  Flush();
  flood();
  EXPECT_EQ(Hit(blocks, text), 8);
  blocks.AdvanceTime(kStart + absl::Seconds(10));
  flood();
  EXPECT_EQ(Hit(blocks, text), 0);
}

std::string Name(const ::testing::TestParamInfo<bool>& info) { return info.param ? "Groups" : "OneGroup"; }
INSTANTIATE_TEST_SUITE_P(All, HostRetentionTest, ::testing::Bool(), Name);
INSTANTIATE_TEST_SUITE_P(All, SmallHostRetentionTest, ::testing::Bool(), Name);

// A window of 8 at the end of 24 tokens shows no more than three blocks; of those before, not all have been kept. So
// the whole text is a hit, and not every text that parts from it earlier.
TEST(HostGroupsTest, APrefixIsAHitIfEveryGroupCanServeIt) {
  BlockManagerOptions options = Options(/*groups=*/true, /*host=*/20);
  BlockManager blocks(options);
  std::vector<BlockCopy> copies;
  std::vector<int32_t> text = Iota(24);
  {
    PrefixKeys keys = KeysOf(text, kBlockSize);
    BlockTable table = blocks.NewTable();
    for (int32_t end = 1; end <= 24; ++end) {  // a token a step: what slides out goes at once
      ASSERT_EQ(blocks.Reserve(table, 24, &copies), absl::OkStatus());
      blocks.Publish(table, text, end, keys);
    }
  }
  BlockTable hog = blocks.NewTable();
  ASSERT_EQ(blocks.Reserve(hog, (kDevice - 1) * kBlockSize, &copies), absl::OkStatus());
  const int64_t out = blocks.stats().copied_out;
  EXPECT_GE(out, 6 + 2);
  EXPECT_EQ(blocks.stats().host_used, out);
  hog.Clear();

  int32_t cut = 0;
  for (int32_t at = kBlockSize; at < 24; at += kBlockSize) {
    std::vector<int32_t> parting(text.begin(), text.begin() + at);
    parting.push_back(77);
    const PrefixMatch match = Match(blocks, parting, KeysOf(parting, kBlockSize));
    cut += match.num_tokens < at && match.miss == MissReason::kSlidOut;
  }
  EXPECT_GT(cut, 0);

  text.push_back(99);
  const PrefixKeys keys = KeysOf(text, kBlockSize);
  BlockTable table = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(keys, text, 24, table).host_blocks, 6);
  ASSERT_EQ(blocks.Reserve(table, 25, &copies), absl::OkStatus());
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(blocks.stats().copied_in, out) << "pages that the table does not need came along";
  EXPECT_EQ(blocks.stats().host_used, 0);
}

}  // namespace
}  // namespace quire::testing
