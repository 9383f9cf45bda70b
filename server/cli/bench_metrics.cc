#include "server/cli/bench_metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire::cli {

double Percentile(absl::Span<const double> sorted, double q) {
  const double position = q / 100 * static_cast<double>(sorted.size() - 1);
  const size_t below = std::min(static_cast<size_t>(position), sorted.size() - 1);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Distribution Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double count = static_cast<double>(values.size());
  Distribution result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double value : values) squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / count);
  result.median = Percentile(values, 50);
  result.p90 = Percentile(values, 90);
  result.p99 = Percentile(values, 99);
  return result;
}

LoadMetrics ComputeMetrics(absl::Span<const RequestRecord> records, double duration) {
  constexpr double kMs = 1e3;
  LoadMetrics metrics;
  metrics.duration = duration;
  std::vector<double> ttft, tpot, itl, e2el;
  for (const RequestRecord& record : records) {
    if (!record.completed) {
      ++metrics.failed;
      continue;
    }
    ++metrics.completed;
    metrics.input_tokens += record.prompt_tokens;
    metrics.output_tokens += record.completion_tokens;
    if (record.chunks.empty()) continue;
    const double first = record.chunks.front() - record.sent, last = record.chunks.back() - record.sent;
    ttft.push_back(first * kMs);
    e2el.push_back(last * kMs);
    if (record.completion_tokens > 1) {
      tpot.push_back((last - first) * kMs / static_cast<double>(record.completion_tokens - 1));
    }
    for (size_t i = 1; i < record.chunks.size(); ++i) itl.push_back((record.chunks[i] - record.chunks[i - 1]) * kMs);
  }
  if (duration > 0) {
    metrics.request_throughput = static_cast<double>(metrics.completed) / duration;
    metrics.output_throughput = static_cast<double>(metrics.output_tokens) / duration;
    metrics.total_token_throughput = static_cast<double>(metrics.input_tokens + metrics.output_tokens) / duration;
  }
  metrics.ttft = Summarize(std::move(ttft));
  metrics.tpot = Summarize(std::move(tpot));
  metrics.itl = Summarize(std::move(itl));
  metrics.e2el = Summarize(std::move(e2el));
  return metrics;
}

}  // namespace quire::cli
