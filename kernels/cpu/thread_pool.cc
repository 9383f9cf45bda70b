#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <string>

#include "kernels/base/check.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpinTime = std::chrono::microseconds(40);
constexpr auto kYieldTime = std::chrono::microseconds(120);  // after spinning

void FutexWait(const void* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(const void* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

// The upper half of a state, which futexes compare.
const void* UpperHalf(const std::atomic<uint64_t>& state) {
  static_assert(std::endian::native == std::endian::little && sizeof(state) == sizeof(uint64_t));
  return reinterpret_cast<const char*>(&state) + sizeof(uint32_t);
}

// True if `done` became true while spinning and yielding; false when it is time to sleep.
template <typename Predicate>
bool SpinThenYield(Predicate done) {
  if (done()) return true;
  const Clock::time_point start = Clock::now();
  Clock::duration waited{};
  do {
    for (int i = 0; i < 16; ++i) {
      __builtin_ia32_pause();
      if (done()) return true;
    }
    waited = Clock::now() - start;
  } while (waited < kSpinTime);
  do {
    sched_yield();
    if (done()) return true;
  } while (Clock::now() - start < kSpinTime + kYieldTime);
  return false;
}

// Failure is harmless: the worker then runs wherever the kernel puts it.
void PinToCpu(pthread_t thread, int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != index % count) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(thread, sizeof(one), &one);
    return;
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, bool pin) : num_threads_(num_threads) {
  QUIRE_CHECK(num_threads >= 1 && num_threads <= 256);
  shares_ = std::make_unique<Share[]>(num_threads);
  workers_.reserve(num_threads - 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
    pthread_setname_np(workers_.back().native_handle(), ("quire-w" + std::to_string(thread)).c_str());
    if (pin) PinToCpu(workers_.back().native_handle(), thread);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  state_.fetch_add(uint64_t{1} << kEpochShift);
  FutexWakeAll(UpperHalf(state_));
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Execute(JobFn fn, void* context, bool wait_for_all) {
  job_fn_ = fn;
  job_context_.store(context, std::memory_order_relaxed);
  const uint64_t next_epoch = epoch() + uint64_t{1};
  // Pairs with WaitForEpoch: either the worker sees the new epoch before it sleeps, or its count is seen here.
  state_.store(next_epoch << kEpochShift | kOpen, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(UpperHalf(state_));

  fn(context, 0);
  if (!wait_for_all) state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  WaitForWorkers(wait_for_all);
}

bool ThreadPool::Finished(bool wait_for_all) const {
  const uint64_t state = state_.load(std::memory_order_seq_cst);
  const uint64_t inside = state & (kOneJoined - 1);
  const uint64_t joined = (state & (kOpen - 1)) / kOneJoined;
  return inside == 0 && (!wait_for_all || joined == static_cast<uint64_t>(num_threads_ - 1));
}

void ThreadPool::WaitForWorkers(bool wait_for_all) {
  if (SpinThenYield([&] { return Finished(wait_for_all); })) return;
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (true) {
    const uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    if (Finished(wait_for_all)) break;
    FutexWait(&wakes_, wakes);
  }
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

bool ThreadPool::NextPiece(int64_t min_grain, int64_t max_grain, Piece* piece) {
  std::atomic<uint64_t>& range = shares_[piece->thread].range;
  uint64_t left = range.load(std::memory_order_relaxed);
  while (true) {
    const auto begin = static_cast<int64_t>(left >> 32), end = static_cast<int64_t>(left & 0xffffffff);
    if (begin == end) {
      if (!RefillShare(piece->thread, min_grain)) return false;
      left = range.load(std::memory_order_relaxed);
      continue;
    }
    const int64_t wanted = std::clamp((end - begin) * 3 / 4, min_grain, std::max(min_grain, max_grain));
    const int64_t next = std::min(begin + wanted, end);
    if (!range.compare_exchange_weak(left, Range(next, end), std::memory_order_relaxed)) continue;
    piece->begin = begin;
    piece->end = next;
    piece->share_end = end;
    return true;
  }
}

// A range never comes back once taken, so a compare-and-swap cannot mistake one for an earlier one.
bool ThreadPool::RefillShare(int thread, int64_t min_grain) {
  for (int i = 1; i < num_threads_; ++i) {
    std::atomic<uint64_t>& victim = shares_[(thread + i) % num_threads_].range;
    uint64_t left = victim.load(std::memory_order_relaxed);
    while (true) {
      const auto begin = static_cast<int64_t>(left >> 32), end = static_cast<int64_t>(left & 0xffffffff);
      if (begin == end) break;
      const int64_t middle = end - begin <= min_grain ? begin : begin + (end - begin) / 2;
      if (!victim.compare_exchange_weak(left, Range(begin, middle), std::memory_order_relaxed)) continue;
      shares_[thread].range.store(Range(middle, end), std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

void ThreadPool::WaitForEpoch(uint32_t seen, int thread) {
  for (Stretch& fetch = shares_[thread].idle_fetch; fetch.bytes > 0; fetch.data += 256, fetch.bytes -= 256) {
    if (epoch() != seen) {
      fetch.bytes = 0;
      return;
    }
    for (int i = 0; i < 4; ++i) __builtin_prefetch(fetch.data + 64 * i, 0, 2);
  }
  if (SpinThenYield([&] { return epoch() != seen; })) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (state_.load(std::memory_order_seq_cst) >> kEpochShift == seen) FutexWait(UpperHalf(state_), seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

bool ThreadPool::Enter(uint32_t* seen) {
  uint64_t state = state_.load(std::memory_order_acquire);
  while (true) {
    const uint32_t epoch = static_cast<uint32_t>(state >> kEpochShift);
    if (epoch == *seen) return false;
    if ((state & kOpen) == 0) {
      *seen = epoch;
      return false;
    }
    if (state_.compare_exchange_weak(state, state + kOneJoined + kOneInside, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      *seen = epoch;
      return true;
    }
  }
}

void ThreadPool::Leave() {
  state_.fetch_sub(kOneInside, std::memory_order_seq_cst);
  if (!caller_sleeps_.load(std::memory_order_seq_cst)) return;
  wakes_.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(&wakes_);
}

void ThreadPool::FetchJob(int thread) const {
  __builtin_prefetch(&shares_[thread]);
  // The job and what it refers to lie on the caller's stack, one behind the other.
  constexpr int kJobLines = 6;
  const char* const job = static_cast<const char*>(job_context_.load(std::memory_order_relaxed));
  for (int i = 0; i < kJobLines; ++i) __builtin_prefetch(job + 64 * i);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitForEpoch(seen, thread);
    if (stop_.load()) return;
    FetchJob(thread);
    if (!Enter(&seen)) continue;
    job_fn_(job_context_.load(std::memory_order_relaxed), thread);
    Leave();
  }
}

}  // namespace quire
