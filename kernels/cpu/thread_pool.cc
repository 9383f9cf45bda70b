#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <string>

#include "kernels/base/check.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpinTime = std::chrono::microseconds(40);
constexpr auto kYieldTime = std::chrono::microseconds(120);  // after spinning

constexpr int64_t kUnits = 65535;  // of a loop: as many as 16 bits count
// Of what a share has left, the part that a piece is.
constexpr int64_t kPieceNumerator = 3, kPieceDenominator = 4;

void FutexWait(const void* word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWakeAll(const void* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

// True if `done` became true while spinning and yielding; false when it is time to sleep.
template <typename Predicate>
bool SpinThenYield(Predicate done) {
  if (done()) return true;
  const Clock::time_point start = Clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      __builtin_ia32_pause();
      if (done()) return true;
    }
  } while (Clock::now() - start < kSpinTime);
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

int64_t ShareUnit(int thread, int num_threads) { return kUnits * thread / num_threads; }

// A loop in slots of items; more than one item a slot only where there are more items than units.
class Items {
 public:
  explicit Items(int64_t n)
      : n_(n), slot_((n + kUnits - 1) / kUnits), slots_(slot_ <= 1 ? n : (n + slot_ - 1) / slot_) {}

  // Slot s begins at unit s * kUnits / slots, rounded down.
  int64_t FirstSlot(int64_t unit) const { return (unit * slots_ + kUnits - 1) / kUnits; }
  int64_t Unit(int64_t slot) const { return slot * kUnits / slots_; }
  int64_t Item(int64_t slot) const { return slot_ <= 1 ? slot : std::min(n_, slot * slot_); }
  // Of items: at least one slot.
  int64_t Slots(int64_t items) const { return slot_ <= 1 ? items : std::max<int64_t>(1, items / slot_); }

 private:
  int64_t n_;
  int64_t slot_;
  int64_t slots_;
};

// What is left of a share.
struct Share {
  uint32_t number = 0;
  int64_t begin = 0;
  int64_t end = 0;

  static Share Of(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<int64_t>(word >> 16 & 0xffff),
            static_cast<int64_t>(word & 0xffff)};
  }
  uint64_t word() const {
    return static_cast<uint64_t>(number) << 32 | static_cast<uint64_t>(begin) << 16 | static_cast<uint64_t>(end);
  }
};

}  // namespace

ThreadPool::ThreadPool(int num_threads, bool pin) : num_threads_(num_threads) {
  QUIRE_CHECK(num_threads >= 1 && num_threads <= 256);
  slots_ = std::make_unique<Slot[]>(num_threads);
  // The loop before the first one is done.
  for (int thread = 0; thread < num_threads; ++thread) slots_[thread].share.store(Share{~uint32_t{0}, 0, 0}.word());
  workers_.reserve(num_threads - 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
    pthread_setname_np(workers_.back().native_handle(), ("quire-w" + std::to_string(thread)).c_str());
    if (pin) PinToCpu(workers_.back().native_handle(), thread);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  WakeSleepers();
  for (std::thread& worker : workers_) worker.join();
}

int64_t ThreadPool::ShareBegin(int64_t n, int thread, int num_threads) {
  const Items items(n);
  return items.Item(items.FirstSlot(ShareUnit(thread, num_threads)));
}

void ThreadPool::RunLoops(absl::Span<const Loop> loops) {
  QUIRE_CHECK(!running_.exchange(true));
  first_ = end_.load(std::memory_order_relaxed);
  loops_ = loops.data();
  const uint64_t end = first_ + loops.size();
  // Pairs with Wait: either the worker sees the new loops before it sleeps, or is seen among the sleepers here.
  end_.store(end, std::memory_order_seq_cst);
  WakeSleepers();
  WorkUntil(end, 0);
  running_.store(false, std::memory_order_relaxed);
}

void ThreadPool::WakeSleepers() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  wakes_.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(&wakes_);
}

template <typename Predicate>
void ThreadPool::Wait(Predicate done) {
  if (SpinThenYield(done)) return;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (true) {
    const uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    if (done()) break;
    FutexWait(&wakes_, wakes);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

// A sum of counters that only grow, read one after the other, is at most what they are in the end. Units of a loop are
// done only after all of the loop before: who sees enough of them has seen, directly or through who did them, all that
// the threads had written by then.
uint64_t ThreadPool::LoopsDone() const {
  uint64_t units = 0;
  for (int thread = 0; thread < num_threads_; ++thread) units += slots_[thread].done.load(std::memory_order_seq_cst);
  return units / kUnits;
}

// A share's number grows with every loop, since each loop has units of each share. So a compare-and-swap that succeeds
// finds units that nobody has taken: the loop is not over, nor will it be before they are reported done.
bool ThreadPool::TakeShare(uint64_t number, int thread, Units* units) {
  std::atomic<uint64_t>& word = slots_[thread].share;
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (true) {
    const Share share = Share::Of(seen);
    const auto age = static_cast<int32_t>(static_cast<uint32_t>(number) - share.number);
    if (age < 0) return false;
    const int64_t begin = age > 0 ? ShareUnit(thread, num_threads_) : share.begin;
    const int64_t end = age > 0 ? ShareUnit(thread + 1, num_threads_) : share.end;
    if (begin == end) return false;
    const uint64_t taken = Share{static_cast<uint32_t>(number), end, end}.word();
    if (!word.compare_exchange_weak(seen, taken, std::memory_order_relaxed)) continue;
    *units = {begin, end};
    return true;
  }
}

bool ThreadPool::Steal(uint64_t number, int thread, const Loop& loop, Units* units) {
  const Items items(loop.n);
  for (int i = 1; i < num_threads_; ++i) {
    const int victim = (thread + i) % num_threads_;
    std::atomic<uint64_t>& word = slots_[victim].share;
    uint64_t seen = word.load(std::memory_order_relaxed);
    while (true) {
      Share share = Share::Of(seen);
      if (share.number != static_cast<uint32_t>(number)) {  // untouched: the victim is not here
        share = {static_cast<uint32_t>(number), ShareUnit(victim, num_threads_), ShareUnit(victim + 1, num_threads_)};
      }
      if (share.begin == share.end) break;
      const int64_t first = items.FirstSlot(share.begin), last = items.FirstSlot(share.end);
      const bool all = last - first <= items.Slots(loop.min_grain);
      const int64_t middle = all ? share.begin : std::max(share.begin, items.Unit(first + (last - first) / 2));
      *units = {middle, share.end};
      share.end = middle;
      if (word.compare_exchange_weak(seen, share.word(), std::memory_order_relaxed)) return true;
    }
  }
  return false;
}

bool ThreadPool::RunPiece(uint64_t number, const Loop& loop, int thread, bool is_first, Units* units) {
  const Items items(loop.n);
  const int64_t begin = items.FirstSlot(units->begin), least = items.Slots(loop.min_grain);
  int64_t end = items.FirstSlot(units->end);
  const int64_t most = std::max(least, items.Slots(loop.max_grain));
  const int64_t wanted = std::clamp((end - begin) * kPieceNumerator / kPieceDenominator, least, most);
  if (begin + wanted < end) {
    end = begin + wanted;
    const Share rest = {static_cast<uint32_t>(number), items.Unit(end), units->end};
    units->end = rest.begin;
    slots_[thread].share.store(rest.word(), std::memory_order_relaxed);
  }
  if (begin == end) return false;
  loop.run(loop.context, {items.Item(begin), items.Item(end), thread, is_first});
  return true;
}

ThreadPool::Bytes ThreadPool::WorkOn(uint64_t number, uint64_t end, int thread) {
  Units units;
  if (!TakeShare(number, thread, &units)) return {};
  const Loop& loop = loops_[number - first_];
  bool is_first = true;
  int64_t done = 0;
  do {
    if (RunPiece(number, loop, thread, is_first, &units)) is_first = false;
    done += units.end - units.begin;
  } while (TakeShare(number, thread, &units) || (!loop.own_shares_only && Steal(number, thread, loop, &units)));
  Bytes fetch;
  if (number + 1 < end) {
    const Loop& next = loops_[number + 1 - first_];
    if (next.first_bytes != nullptr) fetch = next.first_bytes(next.context, thread, num_threads_);
  }
  std::atomic<uint64_t>& total = slots_[thread].done;
  total.store(total.load(std::memory_order_relaxed) + static_cast<uint64_t>(done), std::memory_order_seq_cst);
  return fetch;
}

void ThreadPool::WorkUntil(uint64_t end, int thread) {
  Clock::time_point start;
  if (thread == 0) start = Clock::now();
  for (uint64_t number = LoopsDone(); number < end;) {
    Bytes fetch = WorkOn(number, end, thread);
    uint64_t done = LoopsDone();
    if (done != number) WakeSleepers();
    for (; done == number && fetch.size > 0; fetch.data += 256, fetch.size -= 256) {
      for (int i = 0; i < 4; ++i) __builtin_prefetch(fetch.data + 64 * i, 0, 2);
      done = LoopsDone();
    }
    if (done == number) Wait([&] { return (done = LoopsDone()) != number; });
    if (thread == 0) {
      const Clock::time_point now = Clock::now();
      double* const seconds = loops_[number - first_].seconds;
      if (seconds != nullptr) *seconds += std::chrono::duration<double>(now - start).count();
      start = now;
    }
    number = done;
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint64_t seen = 0;
  while (true) {
    Wait([&] { return end_.load(std::memory_order_seq_cst) != seen || stop_.load(std::memory_order_seq_cst); });
    if (stop_.load()) return;
    seen = end_.load(std::memory_order_acquire);
    WorkUntil(seen, thread);
  }
}

}  // namespace quire
