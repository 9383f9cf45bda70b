#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/bench/gemm_peak.h"

// What the benchmarks of the CPU backend share.
namespace quire {

using BenchClock = std::chrono::steady_clock;

// Rounds before or after which the peak loop ran below this share of its best are left out, and so are those in which
// the threads, who spin while they wait, got less than this share of the processor time there was: something else ran.
inline constexpr double kUndisturbed = 0.85;

inline double SecondsSince(BenchClock::time_point begin) {
  return std::chrono::duration<double>(BenchClock::now() - begin).count();
}

// Processor time of all threads of this process so far.
inline double ProcessSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// REQUIRES: not empty.
inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The peak of a path's instructions, measured again and again: tells a disturbed moment by itself.
struct PeakMeter {
  double (*peak_ops)(int64_t iterations);  // gemm_peak.h
  double best_gops = 0;

  // Operations a second of all threads over some 0.3 ms, in units of 1e9.
  double Measure(ThreadPool& pool) {
    constexpr int64_t kIterations = 1 << 16;
    pool.Run([&](int) {});  // wakes who sleeps
    std::atomic<double> ops = 0;
    const BenchClock::time_point begin = BenchClock::now();
    pool.Run([&](int) { ops.fetch_add(peak_ops(kIterations)); });
    const double gops = ops.load() / 1e9 / SecondsSince(begin);
    best_gops = std::max(best_gops, gops);
    return gops;
  }
};

// Plain reads of memory like that of packed weights: what those who use it all are measured against.
class MemoryReader {
 public:
  // Of a measurement: in the later ones the third-level cache holds what it keeps of more memory than it has room for.
  static constexpr int kPasses = 3;

  explicit MemoryReader(int64_t bytes) {
    auto memory = AllocateHugeMemory(bytes);
    QUIRE_CHECK(memory.ok());
    memory_ = *std::move(memory);
    std::fill_n(memory_.as<char>(), bytes, 1);
  }

  // Bytes a second, in units of 1e9. Each thread reads one stream.
  double Measure(ThreadPool& pool) const {
    constexpr int64_t kPieceBytes = 64 << 10;
    const int64_t pieces = memory_.bytes() / kPieceBytes;
    const BenchClock::time_point begin = BenchClock::now();
    for (int i = 0; i < kPasses; ++i) {
      pool.ParallelForShares(pieces, 1, pieces, [&](const ThreadPool::Piece& piece) {
        ReadBytes(memory_.as<std::byte>() + piece.begin * kPieceBytes, (piece.end - piece.begin) * kPieceBytes);
      });
    }
    return static_cast<double>(kPasses * pieces * kPieceBytes) / 1e9 / SecondsSince(begin);
  }

 private:
  Buffer memory_;
};

}  // namespace quire
