#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ThreadPoolTest, RunReachesEachThreadOnce) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads, /*pin=*/num_threads == 3);
    ASSERT_EQ(pool.num_threads(), num_threads);
    std::vector<int> calls(num_threads, 0);
    std::vector<std::thread::id> ids(num_threads);
    for (int round = 1; round <= 200; ++round) {
      pool.Run([&](int thread) {
        ++calls[thread];
        ids[thread] = std::this_thread::get_id();
      });
      ASSERT_EQ(calls, std::vector<int>(num_threads, round));
    }
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), static_cast<size_t>(num_threads));
  }
}

TEST(ThreadPoolTest, ParallelForCoversEachIndexOnce) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int64_t n : {0, 1, 2, 15, 16, 17, 1000}) {
      for (int64_t grain : {1, 3, 16, 2000}) {
        std::vector<int> hits(n, 0);
        pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[i];
        });
        EXPECT_EQ(hits, std::vector<int>(n, 1)) << "n " << n << " grain " << grain;
      }
    }
  }
}

TEST(ThreadPoolTest, SharesCoverEachIndexOnce) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int64_t n : {0, 1, 2, 15, 16, 17, 1000}) {
      for (int64_t grain : {1, 3, 16, 2000}) {
        std::vector<int> hits(n, 0);
        pool.ParallelForShares(n, grain, 2 * grain, [&](const ThreadPool::Piece& piece) {
          ASSERT_LE(piece.end - piece.begin, 2 * grain);
          ASSERT_LE(piece.end, piece.share_end);
          for (int64_t i = piece.begin; i < piece.end; ++i) ++hits[i];
          if (piece.end == piece.share_end) {
            pool.FetchWhileIdle(piece.thread, reinterpret_cast<const std::byte*>(64), 4096);  // nothing is there
          }
        });
        EXPECT_EQ(hits, std::vector<int>(n, 1)) << "n " << n << " grain " << grain;
      }
    }
  }
}

// A thread that is stuck in its first piece loses the rest of its share to the others.
TEST(ThreadPoolTest, SharesOfABusyThreadAreTaken) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> others{0};
    pool.ParallelForShares(64, 1, 1, [&](const ThreadPool::Piece& piece) {
      if (piece.begin != 0) {
        others.fetch_add(1);
        return;
      }
      while (others.load() < 63) std::this_thread::yield();
    });
    EXPECT_EQ(others.load(), 63);
  }
}

// Each loop reads what the one before wrote: an unordered hand-over would lose an update (and TSan would see it).
TEST(ThreadPoolTest, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    pool.ParallelFor(64, 1 + round % 7, [&](int64_t begin, int64_t end, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, 4);
      for (int64_t i = begin; i < end; ++i) ++values[i];
    });
    if (round % 16 == 0) pool.Run([&](int thread) { values[thread] += 0; });
  }
  for (int64_t value : values) EXPECT_EQ(value, kRounds);
}

// Workers that are still spinning, yielding or asleep when the next loop comes must all be found.
TEST(ThreadPoolTest, RunWakesSleepingWorkers) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(50 * round);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    pool.Run([&](int) { calls.fetch_add(1); });
    EXPECT_EQ(calls.load(), 3 * (round + 1));
  }
}

TEST(ThreadPoolTest, UnevenWorkIsWaitedFor) {
  ThreadPool pool(4);
  std::vector<double> sums(4, 0);
  for (int round = 0; round < 30; ++round) {
    pool.Run([&](int thread) {
      double sum = 0;
      for (int i = 0; i < 20000 * thread * thread; ++i) sum += i;
      sums[thread] = sum;
    });
    for (int thread = 0; thread < 4; ++thread) {
      const double n = 20000.0 * thread * thread;
      EXPECT_EQ(sums[thread], n == 0 ? 0 : n * (n - 1) / 2);
    }
  }
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 5);
}

}  // namespace
}  // namespace quire
