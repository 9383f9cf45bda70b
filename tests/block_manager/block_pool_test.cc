#include "block_manager/block_pool.h"

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

// What a pool means, said as plainly as possible and as slowly as it comes.
class NaivePool {
 public:
  explicit NaivePool(int num_blocks) {
    for (int i = 1; i < num_blocks; ++i) free_.push_back(BlockId{i});
  }

  bool Allocate(int n, std::vector<BlockId>* out, std::vector<BlockId>* evicted) {
    if (n > unused()) return false;
    for (int i = 0; i < n; ++i) {
      const bool from_free = !free_.empty();
      std::deque<BlockId>& queue = from_free ? free_ : cached_;
      if (!from_free) evicted->push_back(queue.front());
      marked_[queue.front()] = false;
      count_[queue.front()] = 1;
      out->push_back(queue.front());
      queue.pop_front();
    }
    return true;
  }

  void Acquire(BlockId b) {
    if (count_[b]++ == 0) std::erase(cached_, b);
  }

  void Release(BlockId b) {
    if (--count_[b] > 0) return;
    if (marked_[b])
      cached_.push_back(b);
    else
      free_.push_front(b);
  }

  void Mark(BlockId b) { marked_[b] = true; }

  void Unmark(BlockId b) {
    marked_[b] = false;
    if (std::erase(cached_, b) > 0) free_.push_front(b);
  }

  int unused_cached() const { return static_cast<int>(cached_.size()); }
  int unused() const { return static_cast<int>(free_.size() + cached_.size()); }
  int count(BlockId b) { return count_[b]; }
  bool marked(BlockId b) { return marked_[b]; }

 private:
  std::deque<BlockId> free_, cached_;
  std::map<BlockId, int> count_;
  std::map<BlockId, bool> marked_;
};

// A pool whose longest unused cached block goes first.
struct FifoPool : private BlockPool::Cache {
  explicit FifoPool(int num_blocks) : pool(num_blocks, this) {}
  void OnUnused(BlockId block) override { queue.push_back(block); }
  void OnUsed(BlockId block) override { std::erase(queue, block); }
  void Evict() override {
    evicted.push_back(queue.front());
    queue.pop_front();
    pool.UnmarkCached(evicted.back());
  }
  void Unmark(BlockId block) {
    std::erase(queue, block);
    pool.UnmarkCached(block);
  }

  std::deque<BlockId> queue;
  std::vector<BlockId> evicted;
  BlockPool pool;
};

TEST(BlockPoolTest, AllocatesAllOrNothing) {
  FifoPool fifo(4);
  BlockPool& pool = fifo.pool;
  std::vector<BlockId> four(4), three(3);
  EXPECT_EQ(pool.Allocate(absl::MakeSpan(four)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.num_unused(), 3);
  EXPECT_TRUE(pool.Allocate(absl::MakeSpan(three)).ok());
  EXPECT_EQ(pool.num_unused(), 0);
  EXPECT_TRUE(fifo.evicted.empty());
}

TEST(BlockPoolTest, GivesOutFreeBlocksBeforeCachedOnesAndTheOldestCachedFirst) {
  FifoPool fifo(4);
  BlockPool& pool = fifo.pool;
  std::vector<BlockId> held(3);
  ASSERT_TRUE(pool.Allocate(absl::MakeSpan(held)).ok());
  pool.MarkCached(held[0]);
  pool.MarkCached(held[1]);
  pool.Release(held[1]);
  pool.Release(held[0]);
  pool.Release(held[2]);

  std::vector<BlockId> again(3);
  ASSERT_TRUE(pool.Allocate(absl::MakeSpan(again)).ok());
  EXPECT_EQ(again, (std::vector<BlockId>{held[2], held[1], held[0]}));
  EXPECT_EQ(fifo.evicted, (std::vector<BlockId>{held[1], held[0]}));
}

TEST(BlockPoolTest, AgreesWithTheNaivePoolOverRandomOperations) {
  constexpr int kBlocks = 12;  // few, so that exhaustion and eviction are frequent
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<BlockId> naive_evicted;
    FifoPool fifo(kBlocks);
    BlockPool& pool = fifo.pool;
    NaivePool naive(kBlocks);
    for (int step = 0; step < 2000; ++step) {
      const BlockId b{static_cast<int32_t>(1 + random() % (kBlocks - 1))};
      switch (random() % 5) {
        case 0: {
          std::vector<BlockId> got(random() % 5), want;
          const bool fits = naive.Allocate(static_cast<int>(got.size()), &want, &naive_evicted);
          ASSERT_EQ(pool.Allocate(absl::MakeSpan(got)).ok(), fits);
          if (fits) {
            ASSERT_EQ(got, want);
          }
          break;
        }
        case 1:
          if (naive.count(b) > 0 || naive.marked(b)) pool.Acquire(b), naive.Acquire(b);
          break;
        case 2:
          if (naive.count(b) > 0) pool.Release(b), naive.Release(b);
          break;
        case 3:
          if (naive.count(b) > 0) pool.MarkCached(b), naive.Mark(b);
          break;
        case 4:
          if (naive.marked(b)) fifo.Unmark(b), naive.Unmark(b);
          break;
      }
      ASSERT_EQ(pool.num_unused(), naive.unused());
      ASSERT_EQ(pool.count(b), naive.count(b));
      ASSERT_EQ(fifo.evicted, naive_evicted);
      ASSERT_EQ(pool.num_unused_cached(), naive.unused_cached());
    }
  }
}

TEST(BlockPoolTest, CheckInvariantsComparesCountsWithLiveTables) {
  FifoPool fifo(4);
  BlockPool& pool = fifo.pool;
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
  BlockId block = kNullBlock;
  ASSERT_TRUE(pool.Allocate(absl::MakeSpan(&block, 1)).ok());
  EXPECT_EQ(pool.CheckInvariants().code(), absl::StatusCode::kInternal);  // held by no table
  pool.Release(block);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
}

}  // namespace
}  // namespace quire
