// Layer groups under a random workload, with a model of the memory: each page holds what was written to it, and every
// step finds in each group the keys that its window shows.

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "block_manager/block_manager.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

struct Setup {
  std::vector<int32_t> windows;
  int32_t block_size = 4;
  int32_t num_pages = 40;
  int32_t num_blocks = 40;
  bool cache = true;
  int32_t num_host_pages = 0, num_host_blocks = 0;
};

// A sequence whose tokens are known and partly stored.
struct Stream {
  explicit Stream(BlockTable empty) : table(std::move(empty)) {}
  std::vector<int32_t> tokens;
  BlockTable table;
  PrefixKeys keys;
  int32_t planned_end = 0;   // of the step being made; 0: not in it
  bool has_stepped = false;  // since it got its first blocks
};

class Simulation {
 public:
  Simulation(const Setup& setup, uint32_t seed) : setup_(setup), random_(seed), manager_(Options(setup)) {
    memory_.resize(static_cast<size_t>(setup.num_pages + setup.num_host_pages) * setup.block_size, 0);
  }
  ~Simulation() { streams_.clear(); }

  void Run(int num_operations) {
    for (int i = 0; i < num_operations && !::testing::Test::HasFailure(); ++i) {
      switch (Draw(8)) {
        case 0:
        case 1:
          Start();
          break;
        case 2:
          Finish();
          break;
        case 3:
          Fork();
          break;
        default:
          Step();
      }
      ASSERT_TRUE(manager_.CheckInvariants().ok()) << i << ": " << manager_.CheckInvariants();
    }
    streams_.clear();
    ASSERT_TRUE(manager_.CheckInvariants().ok()) << manager_.CheckInvariants();
    EXPECT_EQ(manager_.num_unused(), manager_.num_usable());
  }

  int64_t hit_tokens() const { return hit_tokens_; }
  int64_t hits_behind_holes() const { return hits_behind_holes_; }
  int64_t cut_hits() const { return cut_hits_; }
  int64_t copies() const { return num_copies_; }
  int64_t preemptions() const { return num_preemptions_; }
  int64_t short_steps() const { return short_steps_; }
  BlockStats stats() const { return manager_.stats(); }

 private:
  static BlockManagerOptions Options(const Setup& setup) {
    BlockManagerOptions options;
    options.num_blocks = setup.num_blocks;
    options.block_size = setup.block_size;
    options.enable_prefix_cache = setup.cache;
    options.group_windows = setup.windows;
    options.num_pages = setup.num_pages;
    options.num_host_blocks = setup.num_host_blocks;
    options.num_host_pages = setup.num_host_pages;
    return options;
  }

  int32_t Draw(int32_t count) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(count)); }
  int32_t window(int32_t group) const { return setup_.windows[group]; }
  int32_t num_groups() const { return static_cast<int32_t>(setup_.windows.size()); }

  // What the model would store of the last of `tokens` in a group.
  static uint64_t Contents(absl::Span<const int32_t> tokens, int32_t group) {
    uint64_t hash = 14695981039346656037u + group;
    for (const int32_t token : tokens) hash = (hash ^ static_cast<uint64_t>(token + 1)) * 1099511628211u;
    return hash;
  }

  uint64_t& Slot(const BlockTable& table, int32_t group, int32_t position) {
    const PageId page = manager_.pages()->page(group, table.blocks()[position / setup_.block_size]);
    EXPECT_NE(page, kNoPage) << "group " << group << " position " << position;
    return memory_[static_cast<size_t>(page) * setup_.block_size + position % setup_.block_size];
  }

  // Most texts begin like others.
  void Start() {
    if (streams_.size() >= 6) return;
    Stream& stream = streams_.emplace_back(manager_.NewTable());
    const int32_t length = 1 + Draw(12 * setup_.block_size);
    for (int32_t i = 0; i < length; ++i) stream.tokens.push_back(Draw(24) == 0 ? 1 : 0);
    stream.keys.root = RootHash({});
    Admit(stream);
  }

  void Admit(Stream& stream) {
    for (size_t i = stream.keys.blocks.size(); (i + 1) * setup_.block_size <= stream.tokens.size(); ++i) {
      const auto tokens = absl::MakeConstSpan(stream.tokens).subspan(i * setup_.block_size, setup_.block_size);
      stream.keys.blocks.push_back(ChainHash(i == 0 ? stream.keys.root : stream.keys.blocks[i - 1], tokens));
    }
    const auto limit = static_cast<int32_t>(stream.tokens.size()) - 1;
    stream.has_stepped = false;
    const PrefixMatch match = manager_.MatchPrefix(stream.keys, stream.tokens, limit, stream.table);
    ASSERT_LE(match.num_tokens, limit);
    ASSERT_EQ(match.num_tokens, stream.table.num_stored());
    hit_tokens_ += match.num_tokens;
    cut_hits_ += match.miss == MissReason::kSlidOut;
    for (int32_t g = 0; match.num_tokens > 0 && g < num_groups(); ++g) {
      hits_behind_holes_ += window(g) > 0 && !manager_.pages()->Has(g, stream.table.blocks()[0]);
    }
    CheckStored(stream);
  }

  // All that the next row sees.
  void CheckStored(const Stream& stream) {
    const int32_t stored = stream.table.num_stored();
    for (int32_t g = 0; g < num_groups(); ++g) {
      const int32_t first = window(g) == 0 ? 0 : std::max(0, stored - window(g) + 1);
      for (int32_t p = first; p < stored; ++p) {
        ASSERT_EQ(Slot(stream.table, g, p), Contents(absl::MakeConstSpan(stream.tokens).first(p + 1), g))
            << "group " << g << " position " << p << " of " << stored;
      }
    }
  }

  // One step of some streams. A stream for which there is no room gives its blocks back, or moves them to the host.
  // Copies run when they are decided: nothing is written before the last of them.
  void Step() {
    std::vector<BlockCopy> copies;
    const auto run_copies = [&] {
      for (const BlockCopy& copy : copies) Copy(copy);
      num_copies_ += static_cast<int64_t>(copies.size());
      copies.clear();
    };
    for (Stream& stream : streams_) {
      stream.planned_end = 0;
      const auto known = static_cast<int32_t>(stream.tokens.size()), stored = stream.table.num_stored();
      if (Draw(3) == 0 || stored == known) continue;
      if (stream.table.empty()) Admit(stream);
      if (manager_.BlocksMissing(stream.table, known) > manager_.num_unused()) {
        EXPECT_FALSE(manager_.Reserve(stream.table, known, &copies).ok());
        ++num_preemptions_;
        if (setup_.num_host_blocks > 0 && Draw(2) == 0) {
          manager_.SwapOut(stream.table, &copies);
          run_copies();
          continue;
        }
        if (Draw(2) == 0) manager_.Seal(stream.table, stream.tokens, stream.keys);
        stream.table.Clear();
        continue;
      }
      ASSERT_TRUE(manager_.Reserve(stream.table, known, &copies).ok());
      const int32_t from = stream.table.num_stored(), wanted = from + 1 + Draw(known - from);
      stream.planned_end = manager_.ReserveStep(stream.table, wanted, &copies);
      run_copies();
      ASSERT_GT(stream.planned_end, from);
      ASSERT_LE(stream.planned_end, wanted);
      short_steps_ += stream.planned_end < wanted;
    }
    for (Stream& stream : streams_) {
      if (stream.planned_end == 0) continue;
      CheckStored(stream);
      for (int32_t p = stream.table.num_stored(); p < stream.planned_end; ++p) {
        for (int32_t g = 0; g < num_groups(); ++g) {
          Slot(stream.table, g, p) = Contents(absl::MakeConstSpan(stream.tokens).first(p + 1), g);
        }
      }
    }
    for (Stream& stream : streams_) {
      if (stream.planned_end > 0) Commit(stream);
    }
  }

  void Copy(const BlockCopy& copy) {
    const auto from = memory_.begin() + static_cast<int64_t>(copy.src) * setup_.block_size;
    std::copy_n(from, setup_.block_size, memory_.begin() + static_cast<int64_t>(copy.dst) * setup_.block_size);
  }

  void Commit(Stream& stream) {
    manager_.Publish(stream.table, stream.tokens, stream.planned_end, stream.keys);
    CheckStored(stream);
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (window(g) == 0) continue;
      EXPECT_LE(stream.table.paged(g).size(), (window(g) + setup_.block_size - 1) / setup_.block_size + 2);
    }
    if (stream.planned_end == static_cast<int32_t>(stream.tokens.size())) {
      stream.tokens.push_back(Draw(24) == 0 ? 1 : 0);
    }
    stream.planned_end = 0;
    stream.has_stepped = true;
  }

  Stream* Pick() {
    if (streams_.empty()) return nullptr;
    return &*std::next(streams_.begin(), Draw(static_cast<int32_t>(streams_.size())));
  }

  void Finish() {
    Stream* stream = Pick();
    if (stream == nullptr) return;
    if (Draw(4) > 0) manager_.Seal(stream->table, stream->tokens, stream->keys);
    streams_.remove_if([&](const Stream& s) { return &s == stream; });
  }

  void Fork() {
    Stream* parent = Pick();
    if (parent == nullptr || streams_.size() >= 6 || parent->table.num_stored() < 1) return;
    const int32_t back = Draw(3) == 0 ? Draw(parent->table.num_stored()) : Draw(GroupPages::kSlack + 1);
    const int32_t length = std::max(1, parent->table.num_stored() - back);
    Stream& child = streams_.emplace_back(manager_.Fork(parent->table, length));
    if (parent->has_stepped && parent->table.num_stored() - length <= GroupPages::kSlack) {
      EXPECT_EQ(child.table.num_stored(), length);
    }
    child.tokens.assign(parent->tokens.begin(), parent->tokens.begin() + length);
    child.tokens.push_back(Draw(2));
    child.keys.root = parent->keys.root;
    CheckStored(child);
  }

  const Setup setup_;
  std::mt19937 random_;
  BlockManager manager_;
  std::vector<uint64_t> memory_;  // [page, slot]
  std::list<Stream> streams_;
  int64_t hit_tokens_ = 0, hits_behind_holes_ = 0, cut_hits_ = 0, num_copies_ = 0, num_preemptions_ = 0;
  int64_t short_steps_ = 0;
};

class GroupBlocksTest : public ::testing::TestWithParam<Setup> {};

TEST_P(GroupBlocksTest, EveryStepFindsWhatItsWindowsShow) {
  int64_t hit_tokens = 0, hits_behind_holes = 0, cut_hits = 0, copies = 0, preemptions = 0, short_steps = 0;
  int64_t out = 0, in = 0;
  for (uint32_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(GetParam(), seed);
    simulation.Run(400);
    hit_tokens += simulation.hit_tokens();
    hits_behind_holes += simulation.hits_behind_holes();
    cut_hits += simulation.cut_hits();
    copies += simulation.copies();
    preemptions += simulation.preemptions();
    short_steps += simulation.short_steps();
    out += simulation.stats().copied_out;
    in += simulation.stats().copied_in;
  }
  std::printf("  %d pages to the host, %d back\n", static_cast<int>(out), static_cast<int>(in));
  std::printf("  %d hit tokens, %d hits without the first block, %d cut, %d copies, %d preemptions, %d short steps\n",
              static_cast<int>(hit_tokens), static_cast<int>(hits_behind_holes), static_cast<int>(cut_hits),
              static_cast<int>(copies), static_cast<int>(preemptions), static_cast<int>(short_steps));
  EXPECT_EQ(out > 1000, GetParam().num_host_pages > 0);
  EXPECT_EQ(in > 100, GetParam().num_host_pages > 0);
  if (!GetParam().cache) {
    EXPECT_EQ(hit_tokens, 0);
    return;
  }
  const std::vector<int32_t>& windows = GetParam().windows;
  EXPECT_GT(hit_tokens, 1000);
  EXPECT_GT(preemptions, 0);
  EXPECT_EQ(copies > 0, GetParam().block_size > 1 || out > 0);
  if (*std::max_element(windows.begin(), windows.end()) <= 1) return;
  EXPECT_GT(cut_hits, 0);
  const bool block_outlives_page = windows[0] == 0 || GetParam().num_blocks > GetParam().num_pages;
  EXPECT_EQ(hits_behind_holes > 0, block_outlives_page);
}

INSTANTIATE_TEST_SUITE_P(
    Windows, GroupBlocksTest,
    ::testing::Values(
        Setup{.windows = {0}}, Setup{.windows = {0, 6}}, Setup{.windows = {7}, .num_pages = 14, .num_blocks = 200},
        Setup{.windows = {0, 5, 17}, .num_pages = 64, .num_blocks = 64},
        Setup{.windows = {0, 3}, .block_size = 1, .num_pages = 50, .num_blocks = 50},
        Setup{.windows = {1}, .block_size = 1, .num_pages = 12, .num_blocks = 60},
        Setup{.windows = {9, 20}, .block_size = 8, .num_blocks = 70},
        Setup{.windows = {12}, .num_pages = 30, .num_blocks = 30}, Setup{.windows = {0, 6}, .cache = false},
        Setup{.windows = {0, 6}, .num_host_pages = 30, .num_host_blocks = 30},
        Setup{.windows = {0, 5, 17}, .num_pages = 64, .num_blocks = 64, .num_host_pages = 200, .num_host_blocks = 200},
        Setup{.windows = {7}, .num_pages = 14, .num_blocks = 100, .num_host_pages = 10, .num_host_blocks = 40},
        Setup{.windows = {9, 20}, .block_size = 8, .num_blocks = 70, .num_host_pages = 40, .num_host_blocks = 200},
        Setup{.windows = {0, 6}, .cache = false, .num_host_pages = 100, .num_host_blocks = 100}),
    [](const auto& test) {
      return absl::StrCat("block", test.param.block_size, test.param.cache ? "" : "_uncached",
                          test.param.num_host_pages > 0 ? "_host" : "", "_windows_",
                          absl::StrJoin(test.param.windows, "_"), "_of_", test.param.num_blocks);
    });

TEST(GroupPagesTest, PagesOfASequenceAreBoundedByItsWindows) {
  EXPECT_EQ(GroupPages::PagesForSequence({0}, 16, 1000), 63);
  EXPECT_EQ(GroupPages::PagesForSequence({24}, 16, 1000), 3);
  EXPECT_EQ(GroupPages::PagesForSequence({24}, 16, 10), 1);
  EXPECT_EQ(GroupPages::PagesForSequence({0, 24, 24}, 16, 1000), 69);
}

TEST(GroupPagesTest, WhatSlidOutGoesTheOldestFirst) {
  GroupPages pages({6}, 4, {.num_blocks = 10, .num_pages = 5}, {});
  for (const int32_t block : {1, 2, 3, 4}) pages.Attach(0, BlockId{block});
  EXPECT_EQ(pages.num_unused(), 0);
  const PageId second = pages.page(0, BlockId{2});
  pages.Release(0, BlockId{3}, GroupPages::Fate::kSlid);
  pages.Release(0, BlockId{1}, GroupPages::Fate::kSlid);
  pages.Release(0, BlockId{2}, GroupPages::Fate::kFree);
  pages.Release(0, BlockId{4}, GroupPages::Fate::kKept);
  EXPECT_EQ(pages.num_unused(), 4);
  EXPECT_EQ(pages.num_slid(), 2);
  pages.Attach(0, BlockId{5});
  EXPECT_EQ(pages.page(0, BlockId{5}), second);
  pages.DropOldestSlid();
  EXPECT_FALSE(pages.Has(0, BlockId{3}));
  EXPECT_TRUE(pages.Has(0, BlockId{1}));
  pages.SetUsed(BlockId{4});  // by someone who does not see it
  pages.Acquire(0, BlockId{1});
  pages.DropOldestSlid();
  EXPECT_FALSE(pages.Has(0, BlockId{4}));
  EXPECT_EQ(pages.num_unused(), 2);
  EXPECT_EQ(pages.num_free(), 2);
  EXPECT_TRUE(pages.CheckInvariants().ok()) << pages.CheckInvariants();
}

}  // namespace
}  // namespace quire
