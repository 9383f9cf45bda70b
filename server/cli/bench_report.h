#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "server/cli/bench_metrics.h"
#include "server/cli/format.h"

namespace quire::cli {

// One load run, ready to print.
struct BenchResult {
  std::string date;  // YYYYMMDD-HHMMSS, local time
  std::string model;
  std::string dataset;
  int concurrency = 0;
  int num_requests = 0;
  LoadMetrics metrics;
  std::map<std::string, int64_t> errors;  // "CODE: message" -> how often
};

// A table for people.
std::string ReportText(const BenchResult& result);

// The field names of vLLM's `bench serve --save-result`, so that the same scripts read both.
Json ReportJson(const BenchResult& result);

// "warm-up [#####.....] 5/10"
std::string ProgressBar(const std::string& label, int64_t done, int64_t total);

}  // namespace quire::cli
