#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace quire::cli {

// What one request of a load run did. Seconds since the start of the run.
struct RequestRecord {
  bool completed = false;
  std::string error;  // of a failed one: "CODE: message"
  double sent = 0;
  std::vector<double> chunks;  // arrival of each message that carried tokens, ascending
  int64_t prompt_tokens = 0;   // both from the server's usage
  int64_t completion_tokens = 0;
};

// Of a set of values; all 0 for an empty one. Milliseconds.
struct Distribution {
  double mean = 0, median = 0, std = 0, p90 = 0, p99 = 0;
};

// Definitions of vLLM's `bench serve`, over completed requests:
//   TTFT  sent to first chunk            E2EL  sent to last chunk
//   TPOT  (E2EL - TTFT) / (output tokens - 1), requests of one token left out
//   ITL   every gap between two chunks, pooled over all requests
struct LoadMetrics {
  double duration = 0;  // seconds, first request sent to last one ended
  int64_t completed = 0, failed = 0;
  int64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  Distribution ttft, tpot, itl, e2el;
};

LoadMetrics ComputeMetrics(absl::Span<const RequestRecord> records, double duration);

// The q-th percentile, q in [0, 100], linear between neighbours (numpy's default). `sorted` is ascending, not empty.
double Percentile(absl::Span<const double> sorted, double q);

// Population standard deviation, as numpy's.
Distribution Summarize(std::vector<double> values);

}  // namespace quire::cli
