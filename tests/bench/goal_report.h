#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"

// Goals of performance-cpu.md 4.3 beside what Google Benchmark measured.
namespace quire {

// Of all repetitions, by name of benchmark ("BM_PoolPair/10000").
struct BenchFigures {
  std::map<std::string, double> seconds;                          // of an iteration, the least
  std::map<std::string, std::map<std::string, double>> counters;  // the greatest
};

struct BenchGoal {
  const char* id;    // in performance-cpu.md
  const char* what;  // with unit
  double must, aim;  // limits; more is better if aim > must, and less if not
  std::function<double(const BenchFigures&)> figure;
};

// main() of a benchmark binary: runs what the command line selects, then prints each goal whose benchmarks ran, as a
// row of a Markdown table with "met" or "MISSED".
int RunBenchmarks(int argc, char** argv, const std::vector<BenchGoal>& goals);

}  // namespace quire
