#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
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
          ASSERT_LT(piece.begin, piece.end);
          for (int64_t i = piece.begin; i < piece.end; ++i) ++hits[i];
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

// More items than a share's word can count.
TEST(ThreadPoolTest, ManyItems) {
  for (int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    for (int64_t n : {65534, 65535, 65536, 200000}) {
      std::vector<int> hits(n, 0);
      pool.ParallelFor(n, 7, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      ASSERT_EQ(hits, std::vector<int>(n, 1)) << n;
    }
  }
}

TEST(ThreadPoolTest, SharesBeginInOrderAndAreEqual) {
  for (int num_threads : {1, 2, 3, 16, 256}) {
    for (int64_t n : {0, 1, 15, 16, 1000, 65535, 1000000}) {
      EXPECT_EQ(ThreadPool::ShareBegin(n, 0, num_threads), 0);
      EXPECT_EQ(ThreadPool::ShareBegin(n, num_threads, num_threads), n);
      for (int thread = 0; thread < num_threads; ++thread) {
        const int64_t size =
            ThreadPool::ShareBegin(n, thread + 1, num_threads) - ThreadPool::ShareBegin(n, thread, num_threads);
        EXPECT_LE(std::abs(size * num_threads - n), (1 + n / 65535) * num_threads) << n << " " << num_threads;
      }
    }
  }
}

// A chain of loops: each moves all values by one place and adds one, so a thread that goes on before a loop has ended,
// or that comes late and works on one that has, leaves a wrong value (and TSan sees it).
struct Shift {
  std::vector<int64_t>* from;
  std::vector<int64_t>* to;
  std::vector<int>* first_calls;  // one a thread

  void operator()(const ThreadPool::Piece& piece) const {
    if (piece.is_first) ++(*first_calls)[piece.thread];
    const auto n = static_cast<int64_t>(from->size());
    for (int64_t i = piece.begin; i < piece.end; ++i) (*to)[i] = (*from)[(i + 1) % n] + 1;
  }
};

void ExpectShifts(int num_threads, int64_t n, int num_loops, int num_runs) {
  ThreadPool pool(num_threads);
  std::vector<int64_t> a(n), b(n);
  std::iota(a.begin(), a.end(), 0);
  std::vector<int> first_calls(num_threads, 0);
  const Shift forth = {&a, &b, &first_calls}, back = {&b, &a, &first_calls};
  double seconds = 0;
  std::vector<ThreadPool::Loop> loops;
  for (int i = 0; i < num_loops; ++i) {
    ThreadPool::Loop loop = ThreadPool::LoopOf(i % 2 == 0 ? forth : back, n);
    loop.max_grain = 1 + i % 5;
    loop.seconds = &seconds;
    // Nothing is there: it is fetched only, never read.
    loop.first_bytes = [](const void*, int, int) -> ThreadPool::Bytes {
      return {reinterpret_cast<const std::byte*>(64), 1024};
    };
    loops.push_back(loop);
    if (i % 3 == 0) loops.push_back(ThreadPool::LoopOf(forth, 0));
  }
  for (int run = 0; run < num_runs; ++run) pool.RunLoops(loops);
  const int64_t total = int64_t{num_loops} * num_runs;
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(a[i], (i + total) % n + total);
  for (int calls : first_calls) EXPECT_LE(calls, total);
  EXPECT_GE(first_calls[0], 1);
  EXPECT_GT(seconds, 0);
}

TEST(ThreadPoolTest, LoopsOfARunFollowOneAnother) {
  ExpectShifts(/*num_threads=*/1, /*n=*/17, /*num_loops=*/10, /*num_runs=*/10);
  ExpectShifts(2, 64, 100, 20);
  ExpectShifts(3, 2, 100, 20);
  ExpectShifts(16, 100, 20, 10);  // more threads than most machines have cores
}

TEST(ThreadPoolTest, HundredThousandLoops) { ExpectShifts(2, 40, 1000, 100); }

TEST(ThreadPoolTest, RunsWithoutLoops) {
  ThreadPool pool(2);
  pool.RunLoops({});
  int calls = 0;
  pool.ParallelFor(0, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(ThreadPoolDeathTest, NestedRunsAreRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.Run([&](int) { pool.Run([](int) {}); });
      },
      "running_");
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 5);
}

}  // namespace
}  // namespace quire
