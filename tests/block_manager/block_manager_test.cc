#include "block_manager/block_manager.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/block_manager/test_util.h"

namespace quire {
namespace {

using testing::Iota;
using testing::KeysOf;
using testing::OneBitHash;

// A table as it is once all of `tokens` were computed.
BlockTable Computed(BlockManager& blocks, const std::vector<int32_t>& tokens) {
  PrefixKeys keys = KeysOf(tokens, blocks.block_size());
  BlockTable table = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(keys, tokens, 0, table).num_tokens, 0);
  EXPECT_EQ(blocks.Reserve(table, static_cast<int32_t>(tokens.size()), nullptr), absl::OkStatus());
  blocks.Publish(table, tokens, static_cast<int32_t>(tokens.size()), keys);
  return table;
}

TEST(BlockManagerTest, ReservesAllOrNothing) {
  BlockManager blocks({.num_blocks = 5, .block_size = 4});
  BlockTable table = blocks.NewTable();
  ASSERT_TRUE(blocks.Reserve(table, 5, nullptr).ok());
  EXPECT_EQ(table.size(), 2);
  const absl::Status full = blocks.Reserve(table, 17, nullptr);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(blocks.num_unused(), 2);
  EXPECT_TRUE(blocks.Reserve(table, 16, nullptr).ok());
  EXPECT_EQ(blocks.num_unused(), 0);
  table.Clear();
  EXPECT_EQ(blocks.num_unused(), 4);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(BlockManagerTest, NothingIsFindableBeforeItIsPublished) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> tokens = Iota(12);
  PrefixKeys keys = KeysOf(tokens, 4);
  {
    BlockTable dropped = blocks.NewTable();
    ASSERT_TRUE(blocks.Reserve(dropped, 12, nullptr).ok());  // and its step never ran
  }
  BlockTable table = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(keys, tokens, 12, table).num_tokens, 0);
  ASSERT_TRUE(blocks.Reserve(table, 12, nullptr).ok());
  blocks.Publish(table, tokens, 7, keys);
  BlockTable other = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(keys, tokens, 12, other).num_tokens, 4);
}

TEST(BlockManagerTest, AnotherRootFindsNothing) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> tokens = Iota(8);
  const BlockTable table = Computed(blocks, tokens);
  BlockTable other = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(KeysOf(tokens, 4, {9, 9}), tokens, 8, other).num_tokens, 0);
}

TEST(BlockManagerTest, EvictsTailsBeforeHeadsAndTheLongestUnusedFirst) {
  BlockManager blocks({.num_blocks = 7, .block_size = 1});
  const std::vector<int32_t> first = {1, 2, 3}, second = {4, 5, 6};
  Computed(blocks, first).Clear();
  Computed(blocks, second).Clear();
  const auto hits = [&](const std::vector<int32_t>& tokens) {
    BlockTable table = blocks.NewTable();
    return blocks.MatchPrefix(KeysOf(tokens, 1), tokens, 3, table).num_tokens;
  };
  BlockTable hog = blocks.NewTable();
  for (int32_t n = 1; n <= 6; ++n) {
    ASSERT_TRUE(blocks.Reserve(hog, n, nullptr).ok());
    EXPECT_EQ(blocks.stats().evictions, n);
    // Looking up would renew what is found, so it is done on the last round only.
    if (n == 2) {
      EXPECT_EQ(hits(first), 1);
      EXPECT_EQ(hits(second), 3);
    }
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  }
  EXPECT_EQ(hits(first) + hits(second), 0);
}

TEST(BlockManagerTest, ATableWhoseTwinWasEvictedPublishesItsOwnBlocks) {
  BlockManager blocks({.num_blocks = 9, .block_size = 1});
  const std::vector<int32_t> tokens = {1, 2, 3};
  BlockTable twin = Computed(blocks, {1, 2});
  PrefixKeys keys = KeysOf(tokens, 1);
  BlockTable table = blocks.NewTable();
  blocks.MatchPrefix(keys, tokens, 0, table);
  ASSERT_TRUE(blocks.Reserve(table, 3, nullptr).ok());
  blocks.Publish(table, tokens, 2, keys);
  EXPECT_FALSE(blocks.IsFindable(table.blocks()[0]));  // the twin stands in
  twin.Clear();
  {
    BlockTable hog = blocks.NewTable();
    ASSERT_TRUE(blocks.Reserve(hog, 5, nullptr).ok());  // takes the twin's blocks over
  }
  blocks.Publish(table, tokens, 3, keys);
  BlockTable hit = blocks.NewTable();
  EXPECT_EQ(blocks.MatchPrefix(keys, tokens, 3, hit).num_tokens, 3);
  EXPECT_EQ(hit.blocks(), table.blocks());
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

// A table with the first tokens of `tokens` that were found, and room for all of them.
BlockTable Admitted(BlockManager& blocks, const std::vector<int32_t>& tokens, PrefixMatch* match,
                    std::vector<BlockCopy>* copies) {
  BlockTable table = blocks.NewTable();
  *match =
      blocks.MatchPrefix(KeysOf(tokens, blocks.block_size()), tokens, static_cast<int32_t>(tokens.size()) - 1, table);
  const int32_t need = blocks.BlocksMissing(table, static_cast<int32_t>(tokens.size())), before = blocks.num_unused();
  EXPECT_TRUE(blocks.Reserve(table, static_cast<int32_t>(tokens.size()), copies).ok());
  EXPECT_EQ(before - blocks.num_unused(), need);
  EXPECT_EQ(table.size(), blocks.BlocksFor(static_cast<int32_t>(tokens.size())));
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  return table;
}

TEST(BlockManagerTest, B008_NeedEqualsBlocksTakenAndHitsAreTokenExactForEveryLengthAndHit) {
  constexpr int32_t kBlockSize = 4;
  for (int32_t length = 1; length <= 17; ++length) {
    for (int32_t published = 0; published <= length; ++published) {
      for (const bool sealed : {false, true}) {
        for (const bool held : {false, true}) {
          BlockManager blocks({.num_blocks = 20, .block_size = kBlockSize});
          const std::vector<int32_t> tokens = Iota(length), known = Iota(published);
          BlockTable owner = Computed(blocks, known);
          PrefixKeys keys = KeysOf(known, kBlockSize);
          if (sealed) blocks.Seal(owner, known, keys);
          if (!held) owner.Clear();
          PrefixMatch match;
          std::vector<BlockCopy> copies;
          const BlockTable table = Admitted(blocks, tokens, &match, &copies);
          const int32_t findable = sealed ? published : published / kBlockSize * kBlockSize;
          const int32_t reusable = std::min(findable, length - 1);
          EXPECT_EQ(match.num_tokens, reusable < kBlockSize ? 0 : reusable);
          EXPECT_EQ(match.partial_tokens, match.num_tokens % kBlockSize);
          EXPECT_EQ(copies.size(), match.partial_tokens > 0 ? 1u : 0u);
          const bool under_minimum = length - 1 < kBlockSize || (findable > 0 && findable < kBlockSize);
          EXPECT_EQ(match.miss, match.num_tokens == length - 1 ? MissReason::kNone
                                : under_minimum                ? MissReason::kUnderMinimum
                                                               : MissReason::kNeverSeen);
          EXPECT_EQ(match.missed_block, match.num_tokens / kBlockSize);
        }
      }
    }
  }
}

TEST(BlockManagerTest, ASealedTailIsCopiedNotShared) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> known = Iota(6);
  BlockTable owner = Computed(blocks, known);
  PrefixKeys keys = KeysOf(known, 4);
  blocks.Seal(owner, known, keys);
  const BlockId tail = owner.blocks()[1];
  EXPECT_TRUE(blocks.IsFindable(tail));
  PrefixMatch match;
  std::vector<BlockCopy> copies;
  const BlockTable table = Admitted(blocks, Iota(8), &match, &copies);
  EXPECT_EQ(match.num_tokens, 6);
  EXPECT_EQ(copies, (std::vector<BlockCopy>{{tail, table.blocks()[1]}}));
  EXPECT_EQ(table.blocks()[0], owner.blocks()[0]);
  EXPECT_EQ(blocks.count(tail), 1);

  // The owner goes on: its tail is findable now, so it needs a copy as well.
  ASSERT_TRUE(blocks.Reserve(owner, 7, &copies).ok());
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[1], (BlockCopy{tail, owner.blocks()[1]}));
  EXPECT_EQ(blocks.count(tail), 0);
  EXPECT_TRUE(blocks.IsFindable(tail));
  ASSERT_TRUE(blocks.Reserve(owner, 8, &copies).ok());
  EXPECT_EQ(copies.size(), 2u);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(BlockManagerTest, ATailThatGrowsIntoAFullBlockIsDropped) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> known = Iota(6), all = Iota(9);
  BlockTable owner = Computed(blocks, known);
  PrefixKeys keys = KeysOf(known, 4);
  blocks.Seal(owner, known, keys);
  owner.Clear();
  EXPECT_EQ(blocks.stats().cached, 2);
  PrefixMatch match;
  std::vector<BlockCopy> copies;
  BlockTable table = Admitted(blocks, all, &match, &copies);
  const BlockId tail = copies.at(0).src;
  EXPECT_TRUE(blocks.IsFindable(tail));
  PrefixKeys all_keys = KeysOf(all, 4);
  blocks.Publish(table, all, 8, all_keys);
  EXPECT_FALSE(blocks.IsFindable(tail));
  EXPECT_EQ(blocks.stats().cached, 0);
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(BlockManagerTest, WithoutARoomForTheCopyTheLastHolderTakesTheTailOver) {
  BlockManager blocks({.num_blocks = 3, .block_size = 4});
  const std::vector<int32_t> known = Iota(6);
  BlockTable owner = Computed(blocks, known);
  PrefixKeys keys = KeysOf(known, 4);
  blocks.Seal(owner, known, keys);
  owner.Clear();
  PrefixMatch match;
  std::vector<BlockCopy> copies;
  const BlockTable table = Admitted(blocks, Iota(8), &match, &copies);  // no block is free beside its two
  EXPECT_EQ(match.num_tokens, 6);
  EXPECT_TRUE(copies.empty());
  EXPECT_FALSE(blocks.IsFindable(table.blocks()[1]));
  EXPECT_EQ(blocks.count(table.blocks()[1]), 1);
}

TEST(BlockManagerTest, ACopyIsSealedOnlyOnceAStepHasMadeIt) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4});
  const std::vector<int32_t> known = Iota(6), tokens = Iota(8);
  BlockTable owner = Computed(blocks, known);
  PrefixKeys keys = KeysOf(known, 4), more_keys = KeysOf(tokens, 4);
  blocks.Seal(owner, known, keys);
  PrefixMatch match;
  std::vector<BlockCopy> copies;
  BlockTable table = Admitted(blocks, tokens, &match, &copies);
  {
    BlockTable hog = blocks.NewTable();  // the original is gone, only the promise of a copy is left
    owner.Clear();
    ASSERT_TRUE(blocks.Reserve(hog, 4 * blocks.num_unused(), nullptr).ok());
  }
  blocks.Seal(table, tokens, more_keys);
  EXPECT_FALSE(blocks.IsFindable(table.blocks()[1]));
  blocks.Publish(table, tokens, 7, more_keys);
  blocks.Seal(table, tokens, more_keys);
  EXPECT_TRUE(blocks.IsFindable(table.blocks()[1]));
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
}

TEST(BlockManagerTest, HitsInsideABlockMustBeWorthTheCopy) {
  BlockManager blocks({.num_blocks = 20, .block_size = 4, .min_partial_tokens = 3});
  const BlockTable owner = Computed(blocks, Iota(8));
  PrefixMatch match;
  std::vector<BlockCopy> copies;
  { const BlockTable table = Admitted(blocks, {0, 1, 2, 3, 4, 5, 9, 9, 9}, &match, &copies); }
  EXPECT_EQ(match.num_tokens, 4);
  EXPECT_EQ(match.miss, MissReason::kCopyNotWorth);
  { const BlockTable table = Admitted(blocks, {0, 1, 2, 3, 4, 5, 6, 9, 9}, &match, &copies); }
  EXPECT_EQ(match.num_tokens, 7);
  EXPECT_EQ(match.miss, MissReason::kNeverSeen);
  EXPECT_EQ(match.missed_block, 1);
}

TEST(BlockManagerTest, AForkSharesAllBlocksAndTheFirstToWriteCopies) {
  for (const bool caching : {false, true}) {
    BlockManager blocks({.num_blocks = 6, .block_size = 4, .enable_prefix_cache = caching});
    BlockTable parent = Computed(blocks, Iota(10));
    BlockTable fork = blocks.Fork(parent, 10), aligned = blocks.Fork(parent, 4);
    EXPECT_EQ(fork.blocks(), parent.blocks());
    EXPECT_EQ(fork.num_stored(), 10);
    EXPECT_EQ(aligned.size(), 1);
    EXPECT_EQ(blocks.count(parent.blocks()[0]), 3);
    EXPECT_EQ(blocks.num_unused(), 2);
    const BlockId tail = parent.blocks()[2];
    std::vector<BlockCopy> copies;
    EXPECT_EQ(blocks.BlocksMissing(parent, 11), 1);
    ASSERT_TRUE(blocks.Reserve(parent, 11, &copies).ok());
    EXPECT_EQ(copies, (std::vector<BlockCopy>{{tail, parent.blocks()[2]}}));
    EXPECT_EQ(blocks.BlocksMissing(fork, 11), 0);  // it is the only holder now
    ASSERT_TRUE(blocks.Reserve(fork, 11, &copies).ok());
    EXPECT_EQ(copies.size(), 1u);
    EXPECT_EQ(fork.blocks()[2], tail);
    EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
    {
      const BlockTable hog = blocks.Fork(parent, 10);
      ASSERT_TRUE(blocks.Reserve(aligned, 8, nullptr).ok());
      EXPECT_EQ(blocks.num_unused(), 0);
      EXPECT_EQ(blocks.Reserve(parent, 12, &copies).code(), absl::StatusCode::kResourceExhausted);
    }
    EXPECT_TRUE(blocks.Reserve(parent, 12, &copies).ok());
    EXPECT_EQ(copies.size(), 1u);
  }
}

TEST(BlockManagerTest, MovedTablesKeepTheirBlocksAndStayRegistered) {
  BlockManager blocks({.num_blocks = 9, .block_size = 1});
  BlockTable a = blocks.NewTable(), b = blocks.NewTable();
  ASSERT_TRUE(blocks.Reserve(a, 3, nullptr).ok() && blocks.Reserve(b, 2, nullptr).ok());
  BlockTable c(std::move(a));
  b = std::move(c);
  EXPECT_EQ(b.size(), 3);
  EXPECT_EQ(blocks.num_unused(), 5);
  std::vector<BlockTable> tables;
  for (int i = 0; i < 5; ++i) tables.push_back(blocks.NewTable());
  ASSERT_TRUE(blocks.Reserve(tables[2], 4, nullptr).ok());
  tables.erase(tables.begin());
  EXPECT_EQ(blocks.CheckInvariants(), absl::OkStatus());
  EXPECT_EQ(blocks.num_unused(), 1);
}

// Sequences as a scheduler would drive them, over a shadow memory that says which prefix each slot holds. No block that
// is shared or findable is ever written, and every token below num_computed reads the prefix of its own sequence.
class Shadow {
 public:
  Shadow(BlockManagerOptions options, uint32_t seed)
      : options_(options), blocks_(options), random_(seed), memory_(options.num_blocks * options.block_size) {}

  void Step() {
    switch (random_() % 7) {
      case 0:
        return Begin();
      case 1:
        return Fork();
      case 2:
      case 3:
        return End();
      default:
        return Advance();
    }
  }

  void Check() {
    ASSERT_EQ(blocks_.CheckInvariants(), absl::OkStatus());
    const BlockStats stats = blocks_.stats();
    ASSERT_EQ(stats.free + stats.cached + stats.active, stats.total);
    for (const auto& s : sequences_) {
      std::vector<int32_t> prefix;
      for (int32_t p = 0; p < s->computed; ++p) {
        prefix.push_back(s->tokens[p]);
        ASSERT_EQ(memory_[s->table.slot(p, options_.block_size)], prefix);
      }
    }
  }

  int64_t num_hits() const { return num_hits_; }
  int64_t num_evictions() const { return blocks_.stats().evictions; }

 private:
  struct Live {
    explicit Live(BlockTable empty) : table(std::move(empty)) {}
    std::vector<int32_t> tokens;
    int32_t computed = 0;
    BlockTable table;
    PrefixKeys keys;
  };

  void Begin() {
    auto s = std::make_unique<Live>(blocks_.NewTable());
    for (uint32_t n = 1 + random_() % 14; n > 0; --n) s->tokens.push_back(static_cast<int32_t>(random_() % 2));
    s->keys = KeysOf({}, 1);
    const absl::Span<const int32_t> tokens(s->tokens);
    for (size_t i = 0; (i + 1) * options_.block_size <= tokens.size(); ++i) {
      s->keys.blocks.push_back(options_.chain_hash(i == 0 ? s->keys.root : s->keys.blocks[i - 1],
                                                   tokens.subspan(i * options_.block_size, options_.block_size)));
    }
    s->computed =
        blocks_.MatchPrefix(s->keys, s->tokens, static_cast<int32_t>(s->tokens.size()) - 1, s->table).num_tokens;
    num_hits_ += s->computed;
    sequences_.push_back(std::move(s));
  }

  void Advance() {
    if (sequences_.empty()) return;
    Live& s = *sequences_[random_() % sequences_.size()];
    if (s.computed == static_cast<int32_t>(s.tokens.size())) s.tokens.push_back(static_cast<int32_t>(random_() % 2));
    const auto known = static_cast<int32_t>(s.tokens.size());
    const int32_t end = s.computed + 1 + static_cast<int32_t>(random_() % (known - s.computed));
    const std::vector<BlockId> before(s.table.blocks().begin(), s.table.blocks().end());
    const int32_t missing = blocks_.BlocksMissing(s.table, end), unused = blocks_.num_unused();
    std::vector<BlockCopy> copies;
    ASSERT_EQ(blocks_.Reserve(s.table, end, &copies).ok(), missing <= unused);
    for (const BlockCopy& copy : copies) Copy(copy);
    const size_t unchanged = before.size() - copies.size();
    ASSERT_TRUE(std::equal(before.begin(), before.begin() + unchanged, s.table.blocks().begin()));
    if (missing > unused) {
      ASSERT_EQ(blocks_.num_unused(), unused);
      return;
    }
    for (; s.computed < end; ++s.computed) {
      const BlockId block = s.table.blocks()[s.computed / options_.block_size];
      ASSERT_EQ(blocks_.count(block), 1);
      ASSERT_FALSE(blocks_.IsFindable(block));
      memory_[s.table.slot(s.computed, options_.block_size)] = {s.tokens.begin(), s.tokens.begin() + s.computed + 1};
    }
    blocks_.Publish(s.table, s.tokens, s.computed, s.keys);
  }

  void Fork() {
    if (sequences_.empty()) return;
    const Live& parent = *sequences_[random_() % sequences_.size()];
    if (parent.computed == 0) return;
    const int32_t num_tokens = static_cast<int32_t>(random_() % parent.computed);
    auto s = std::make_unique<Live>(blocks_.Fork(parent.table, num_tokens));
    s->tokens.assign(parent.tokens.begin(), parent.tokens.begin() + num_tokens);
    s->tokens.push_back(static_cast<int32_t>(random_() % 2));
    s->keys = KeysOf({}, 1);
    s->computed = num_tokens;
    sequences_.push_back(std::move(s));
  }

  void End() {
    if (sequences_.empty()) return;
    const auto ended = sequences_.begin() + random_() % sequences_.size();
    if (random_() % 2 == 0) blocks_.Seal((*ended)->table, (*ended)->tokens, (*ended)->keys);
    if (random_() % 8 != 0) sequences_.erase(ended);
  }

  void Copy(const BlockCopy& copy) {
    ASSERT_EQ(blocks_.count(copy.dst), 1);
    ASSERT_FALSE(blocks_.IsFindable(copy.dst));
    const auto begin = memory_.begin() + static_cast<int32_t>(copy.src) * options_.block_size;
    std::copy(begin, begin + options_.block_size,
              memory_.begin() + static_cast<int32_t>(copy.dst) * options_.block_size);
  }

  const BlockManagerOptions options_;
  BlockManager blocks_;
  std::mt19937 random_;
  std::vector<std::vector<int32_t>> memory_;  // by slot: the tokens up to and with the one stored
  std::vector<std::unique_ptr<Live>> sequences_;
  int64_t num_hits_ = 0;
};

TEST(BlockManagerTest, RandomSequencesAlwaysReadTheirOwnPrefix) {
  int64_t hits = 0, evictions = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    BlockManagerOptions options;
    options.block_size = static_cast<int32_t>(1 + seed % 4);
    options.num_blocks = static_cast<int32_t>(8 + seed % 17);
    options.enable_prefix_cache = seed % 5 != 0;
    if (seed % 2 == 1) options.chain_hash = &OneBitHash;
    Shadow shadow(options, seed);
    for (int step = 0; step < 800; ++step) {
      shadow.Step();
      ASSERT_FALSE(HasFailure());
      shadow.Check();
      ASSERT_FALSE(HasFailure());
    }
    hits += shadow.num_hits();
    evictions += shadow.num_evictions();
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(evictions, 1000);
}

}  // namespace
}  // namespace quire
