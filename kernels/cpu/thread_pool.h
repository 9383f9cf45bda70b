#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace quire {

// A fixed set of threads for loops of microseconds. The calling thread is number 0 of them and works too.
//
// Workers spin for some tens of microseconds after a loop, since a futex wake costs as much as hundreds of loops, then
// yield, then sleep; so does the caller at a loop's end. A worker that the operating system keeps off its core does not
// hold up ParallelFor unless it is inside a chunk: whoever runs takes the chunks, and who comes late is not waited for.
//
// Thread rule: one thread at a time may call Run or ParallelFor, and the functions they run may not. What happened
// before the call is visible to all threads in it; what they did is visible after it. Nothing is allocated.
class ThreadPool {
 public:
  // Starts num_threads - 1 workers named quire-w1, quire-w2, ... num_threads in [1, 256]. With `pin`, worker i stays on
  // the i-th CPU that the process may use (the caller is left where it is).
  explicit ThreadPool(int num_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls fn(thread) once for each thread in [0, num_threads), each on its own thread.
  template <typename F>
  void Run(F&& fn) {
    if (num_threads_ == 1) {
      fn(0);
      return;
    }
    Execute(&Call<std::remove_reference_t<F>>, Erase(fn), /*wait_for_all=*/true);
  }

  // Calls fn(begin, end) or fn(begin, end, thread) for disjoint ranges that cover [0, n): pieces of `grain` (>= 1),
  // handed out in ascending order to whoever is free, or larger ones if there is nobody to share with. Which thread
  // gets what is a matter of chance, so results must not depend on it.
  template <typename F>
  void ParallelFor(int64_t n, int64_t grain, F&& fn) {
    if (n <= 0) return;
    if (num_threads_ == 1 || n <= grain) {
      CallRange(fn, 0, n, 0);
      return;
    }
    std::atomic<int64_t> next{0};
    auto take_pieces = [&fn, &next, n, grain](int thread) {
      while (true) {
        const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= n) return;
        CallRange(fn, begin, n - begin < grain ? n : begin + grain, thread);
      }
    };
    Execute(&Call<decltype(take_pieces)>, &take_pieces, /*wait_for_all=*/false);
  }

  // A piece [begin, end) of the share that `thread` is going through, which ends at share_end.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t share_end = 0;
    int thread = 0;
  };

  // Calls fn(Piece) for pieces that cover [0, n), n < 2^32. Each thread goes front to back through a share of its own,
  // which begins at ShareBegin, so what it reads is one stream; who has done his share goes on with the latter half of
  // what another has left. A piece is half of what is left of the share, but of min_grain to max_grain: taking one
  // stops all loads and stores of the core for a moment. Which thread gets what is a matter of chance here too.
  template <typename F>
  void ParallelForShares(int64_t n, int64_t min_grain, int64_t max_grain, F&& fn) {
    if (n <= 0) return;
    for (int thread = 0; thread < num_threads_; ++thread) {
      shares_[thread].range.store(Range(ShareBegin(n, thread), ShareBegin(n, thread + 1)), std::memory_order_relaxed);
    }
    auto work = [this, &fn, min_grain, max_grain](int thread) {
      Piece piece{.thread = thread};
      while (NextPiece(min_grain, max_grain, &piece)) fn(static_cast<const Piece&>(piece));
    };
    if (num_threads_ == 1 || n == 1) {
      work(0);
    } else {
      Execute(&Call<decltype(work)>, &work, /*wait_for_all=*/false);
    }
  }

  int64_t ShareBegin(int64_t n, int thread) const { return n * thread / num_threads_; }

  // To be called by `thread` within a loop: while it waits for the next one it fetches these bytes into its cache.
  void FetchWhileIdle(int thread, const std::byte* data, int64_t bytes) { shares_[thread].idle_fetch = {data, bytes}; }

 private:
  struct Stretch {
    const std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  struct alignas(64) Share {
    std::atomic<uint64_t> range{0};  // what is left: begin in the upper half, end in the lower
    Stretch idle_fetch;              // touched by its thread only
  };
  static uint64_t Range(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
  }

  // Takes a piece off the front of piece->thread's share; refills an empty one from others first. False: all is taken.
  bool NextPiece(int64_t min_grain, int64_t max_grain, Piece* piece);
  bool RefillShare(int thread, int64_t min_grain);

  using JobFn = void (*)(void* context, int thread);

  template <typename F>
  static void Call(void* context, int thread) {
    (*static_cast<F*>(context))(thread);
  }
  template <typename F>
  static void* Erase(F& fn) {
    return const_cast<void*>(static_cast<const void*>(std::addressof(fn)));
  }
  template <typename F>
  static void CallRange(F& fn, int64_t begin, int64_t end, int thread) {
    if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int>) {
      fn(begin, end, thread);
    } else {
      fn(begin, end);
    }
  }

  // Publishes the job, takes part in it, and returns when no thread is in it and, with wait_for_all, each has been.
  void Execute(JobFn fn, void* context, bool wait_for_all);
  void WaitForWorkers(bool wait_for_all);
  bool Finished(bool wait_for_all) const;

  void WorkerLoop(int thread);
  // Waits until epoch_ differs from `seen`.
  void WaitForEpoch(uint32_t seen, int thread);
  // Joins the current job unless it is closed. Sets *seen to its epoch.
  bool Enter(uint32_t* seen);
  // Fetches what a worker needs first of a job, all at once.
  void FetchJob(int thread) const;
  void Leave();

  uint32_t epoch() const { return static_cast<uint32_t>(state_.load(std::memory_order_acquire) >> kEpochShift); }

  // The current job, in one word so that joining is one compare-and-swap: its epoch in the upper half, then one bit
  // "open for joining", 15 bits "workers that joined", 16 bits "workers inside". Workers spin and sleep on the epoch.
  static constexpr uint64_t kEpochShift = 32;
  static constexpr uint64_t kOpen = uint64_t{1} << 31;
  static constexpr uint64_t kOneJoined = uint64_t{1} << 16;
  static constexpr uint64_t kOneInside = 1;

  const int num_threads_;

  // One cache line: fetching it from another core takes as long as a loop over a small layer, so who sees the new epoch
  // has the job, too. The job is written before state_ opens it and read only by who has joined it.
  alignas(64) std::atomic<uint64_t> state_{0};
  JobFn job_fn_ = nullptr;
  std::atomic<void*> job_context_{nullptr};  // also looked at, not used, by who is about to join

  alignas(64) std::atomic<uint32_t> sleepers_{0};  // workers that sleep on the epoch or are about to
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<uint32_t> wakes_{0};  // the caller sleeps on it; changed by a worker that leaves
  std::atomic<bool> caller_sleeps_{false};

  std::unique_ptr<Share[]> shares_;
  std::vector<std::thread> workers_;
};

}  // namespace quire
