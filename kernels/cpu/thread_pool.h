#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace quire {

// A fixed set of threads for loops of microseconds, one behind the other. The calling thread is number 0 of them and
// works too.
//
// All loops of a run are one job: each thread goes from loop to loop by itself, and between two loops there is a
// barrier that costs one cache line from core to core. A loop ends when its work is done, not when all threads have
// been in it: a thread that the operating system keeps off its core holds up the others only if it is in the middle of
// a piece. Whoever waits spins for some tens of microseconds, then yields, then sleeps, within a run and between runs.
//
// Thread rule: one thread at a time may start a run (Run, RunLoops, ParallelFor, ParallelForShares), and what runs in
// one may not (checked). What happened before a run is visible in it, what a loop did is visible to the next one and
// after the run. Nothing is allocated.
class ThreadPool {
 public:
  // What a thread does at a time: [begin, end) of a loop.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int thread = 0;
    bool is_first = false;  // of this thread in this loop
  };

  struct Bytes {
    const std::byte* data = nullptr;
    int64_t size = 0;
  };

  // Calls run(context, piece) for disjoint pieces that cover [0, n). Each thread goes front to back through a share of
  // its own, which begins at ShareBegin, so what it reads is one stream; who has done his share goes on with the latter
  // half of what another has left. A piece is most of what is left of the share, but of min_grain to max_grain: taking
  // one stops all loads and stores of the core for a moment. Which thread gets what is a matter of chance, so results
  // must not depend on it.
  struct Loop {
    void (*run)(void* context, const Piece& piece) = nullptr;
    void* context = nullptr;
    int64_t n = 0;
    int64_t min_grain = 1;
    int64_t max_grain = INT64_MAX;
    bool own_shares_only = false;  // each thread does its share and no other
    // If not null: what `thread` will need first. It fetches it into its cache while it waits for this loop to begin.
    Bytes (*first_bytes)(const void* context, int thread, int num_threads) = nullptr;
    double* seconds = nullptr;  // if not null: the loop's duration is added
  };

  // Starts num_threads - 1 workers named quire-w1, quire-w2, ... num_threads in [1, 256]. With `pin`, worker i stays on
  // the i-th CPU that the process may use (the caller is left where it is).
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Runs the loops in order. They stay as they are until it returns.
  void RunLoops(absl::Span<const Loop> loops);

  // Calls fn(thread) once for each thread in [0, num_threads), each on its own thread.
  template <typename F>
  void Run(F&& fn) {
    const auto run = [&fn](const Piece& piece) { fn(piece.thread); };
    Loop loop = LoopOf(run, num_threads_);
    loop.own_shares_only = true;
    RunLoops({&loop, 1});
  }

  // One loop of fn(Piece).
  template <typename F>
  void ParallelForShares(int64_t n, int64_t min_grain, int64_t max_grain, F&& fn) {
    Loop loop = LoopOf(fn, n);
    loop.min_grain = min_grain, loop.max_grain = max_grain;
    RunLoops({&loop, 1});
  }

  // One loop of fn(begin, end) or fn(begin, end, thread) in pieces of at most `grain`; in one piece, by the caller, if
  // n is not larger.
  template <typename F>
  void ParallelFor(int64_t n, int64_t grain, F&& fn) {
    const auto run = [&fn](const Piece& piece) {
      if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int>) {
        fn(piece.begin, piece.end, piece.thread);
      } else {
        fn(piece.begin, piece.end);
      }
    };
    if (n > 0 && n <= grain) return run({0, n, 0, true});
    ParallelForShares(n, grain, grain, run);
  }

  // A loop of fn(Piece) over [0, n), which refers to fn.
  template <typename F>
  static Loop LoopOf(F& fn, int64_t n) {
    Loop loop;
    loop.run = [](void* context, const Piece& piece) { (*static_cast<F*>(context))(piece); };
    loop.context = const_cast<void*>(static_cast<const void*>(std::addressof(fn)));
    loop.n = n;
    return loop;
  }

  // The first of n that is in the share of `thread`; n for num_threads.
  static int64_t ShareBegin(int64_t n, int thread, int num_threads);

 private:
  // A part of a loop in units: every loop has kUnits of them, whatever its n, so that a share can be taken by who knows
  // nothing of the loop yet.
  struct Units {
    int64_t begin = 0;
    int64_t end = 0;
  };
  // What one thread changes and others look at; each word on a line of its own, since lines wander.
  struct Slot {
    // What is left of the thread's share: the low half of the loop's number, begin, end. An older number: all of it.
    alignas(64) std::atomic<uint64_t> share{0};
    // Units it has done of all loops so far.
    alignas(64) std::atomic<uint64_t> done{0};
  };

  // Takes all that is left of the share of `thread` in loop `number`. False: nothing is, or the loop is over.
  bool TakeShare(uint64_t number, int thread, Units* units);
  // Takes the latter half of what another thread has left, which the caller has not yet finished the loop for.
  bool Steal(uint64_t number, int thread, const Loop& loop, Units* units);
  // Does what it can take of loop `number`. Returns what to fetch while waiting.
  Bytes WorkOn(uint64_t number, uint64_t end, int thread);
  // Runs the front of `units` and makes the rest the thread's share. False: nothing of n was in it.
  bool RunPiece(uint64_t number, const Loop& loop, int thread, bool is_first, Units* units);
  // Takes part in the loops up to `end` and returns when they are done.
  void WorkUntil(uint64_t end, int thread);
  void WorkerLoop(int thread);

  // Loops that are done, of all runs.
  uint64_t LoopsDone() const;
  template <typename Predicate>
  void Wait(Predicate done);
  void WakeSleepers();

  const int num_threads_;
  std::unique_ptr<Slot[]> slots_;

  // Number of the loop behind the last one of the run. The loops are written before it and read only by who has taken
  // units of one of them, or is the caller.
  alignas(64) std::atomic<uint64_t> end_{0};
  uint64_t first_ = 0;
  const Loop* loops_ = nullptr;
  std::atomic<bool> stop_{false};

  alignas(64) std::atomic<uint32_t> sleepers_{0};  // threads that sleep on wakes_ or are about to
  std::atomic<uint32_t> wakes_{0};
  std::atomic<bool> running_{false};

  std::vector<std::thread> workers_;
};

}  // namespace quire
