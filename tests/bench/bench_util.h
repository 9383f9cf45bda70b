#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <vector>

#include "kernels/cpu/thread_pool.h"

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

}  // namespace quire
