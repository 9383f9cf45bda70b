#include "server/cli/bench_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire::cli {
namespace {

std::string Row(const char* name, const Distribution& values) {
  return absl::StrFormat("  %-6s %10.2f %10.2f %10.2f %10.2f\n", name, values.mean, values.median, values.p90,
                         values.p99);
}

void AddFields(const std::string& name, const Distribution& values, Json& json) {
  json[absl::StrCat("mean_", name, "_ms")] = values.mean;
  json[absl::StrCat("median_", name, "_ms")] = values.median;
  json[absl::StrCat("std_", name, "_ms")] = values.std;
  json[absl::StrCat("p50_", name, "_ms")] = values.median;
  json[absl::StrCat("p90_", name, "_ms")] = values.p90;
  json[absl::StrCat("p99_", name, "_ms")] = values.p99;
}

}  // namespace

std::string ReportText(const BenchResult& result) {
  const LoadMetrics& metrics = result.metrics;
  std::string text = absl::StrFormat(
      "%s, %s, concurrency %d: %d completed, %d failed in %.2f s\n"
      "  %.2f req/s, %.1f output tok/s, %.1f total tok/s (%d tokens in, %d out)\n"
      "  %-6s %10s %10s %10s %10s\n",
      result.model, result.dataset, result.concurrency, metrics.completed, metrics.failed, metrics.duration,
      metrics.request_throughput, metrics.output_throughput, metrics.total_token_throughput, metrics.input_tokens,
      metrics.output_tokens, "ms", "mean", "p50", "p90", "p99");
  absl::StrAppend(&text, Row("TTFT", metrics.ttft), Row("TPOT", metrics.tpot), Row("ITL", metrics.itl),
                  Row("E2E", metrics.e2el));
  for (const auto& [error, count] : result.errors) absl::StrAppend(&text, "  failed ", count, " x ", error, "\n");
  return text;
}

Json ReportJson(const BenchResult& result) {
  const LoadMetrics& metrics = result.metrics;
  Json json = {{"date", result.date},
               {"backend", "quire"},
               {"model_id", result.model},
               {"dataset", result.dataset},
               {"num_prompts", result.num_requests},
               {"request_rate", "inf"},
               {"max_concurrency", result.concurrency},
               {"duration", metrics.duration},
               {"completed", metrics.completed},
               {"failed", metrics.failed},
               {"total_input_tokens", metrics.input_tokens},
               {"total_output_tokens", metrics.output_tokens},
               {"request_throughput", metrics.request_throughput},
               {"output_throughput", metrics.output_throughput},
               {"total_token_throughput", metrics.total_token_throughput}};
  AddFields("ttft", metrics.ttft, json);
  AddFields("tpot", metrics.tpot, json);
  AddFields("itl", metrics.itl, json);
  AddFields("e2el", metrics.e2el, json);
  if (!result.errors.empty()) json["errors"] = result.errors;
  return json;
}

std::string ProgressBar(const std::string& label, int64_t done, int64_t total) {
  constexpr int kWidth = 40;
  const int filled = total > 0 ? static_cast<int>(done * kWidth / total) : kWidth;
  return absl::StrFormat("%s [%s%s] %d/%d", label, std::string(filled, '#'), std::string(kWidth - filled, '.'), done,
                         total);
}

}  // namespace quire::cli
