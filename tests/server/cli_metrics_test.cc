#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cli/bench_metrics.h"
#include "server/cli/bench_report.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

RequestRecord Completed(double sent, std::vector<double> chunks, int64_t prompt_tokens, int64_t completion_tokens) {
  RequestRecord record;
  record.completed = true;
  record.sent = sent;
  record.chunks = std::move(chunks);
  record.prompt_tokens = prompt_tokens;
  record.completion_tokens = completion_tokens;
  return record;
}

TEST(PercentileTest, InterpolatesLinearly) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 90), 3.7);
  EXPECT_DOUBLE_EQ(Percentile(values, 99), 3.97);
  EXPECT_DOUBLE_EQ(Percentile(values, 100), 4);
  EXPECT_DOUBLE_EQ(Percentile(std::vector<double>{7}, 90), 7);
}

TEST(SummarizeTest, SortsAndSummarizes) {
  const Distribution values = Summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(values.mean, 2.5);
  EXPECT_DOUBLE_EQ(values.median, 2.5);
  EXPECT_NEAR(values.std, 1.1180339887, 1e-9);  // population
  EXPECT_DOUBLE_EQ(values.p90, 3.7);
}

TEST(SummarizeTest, NothingGivesZeros) {
  const Distribution values = Summarize({});
  EXPECT_EQ(values.mean, 0);
  EXPECT_EQ(values.p99, 0);
}

TEST(ComputeMetricsTest, FollowsTheDefinitions) {
  // TTFT 100 ms, E2EL 400 ms, 4 tokens in 3 chunks: TPOT 300 / 3, gaps 100 and 200.
  // TTFT 300 ms, E2EL 500 ms, 2 tokens: TPOT 200, one gap.
  const std::vector<RequestRecord> records = {Completed(1.0, {1.1, 1.2, 1.4}, 10, 4),
                                              Completed(2.0, {2.3, 2.5}, 20, 2)};
  const LoadMetrics metrics = ComputeMetrics(records, 2.0);
  EXPECT_EQ(metrics.completed, 2);
  EXPECT_EQ(metrics.failed, 0);
  EXPECT_EQ(metrics.input_tokens, 30);
  EXPECT_EQ(metrics.output_tokens, 6);
  EXPECT_DOUBLE_EQ(metrics.request_throughput, 1);
  EXPECT_DOUBLE_EQ(metrics.output_throughput, 3);
  EXPECT_DOUBLE_EQ(metrics.total_token_throughput, 18);
  EXPECT_NEAR(metrics.ttft.mean, 200, 1e-6);
  EXPECT_NEAR(metrics.e2el.mean, 450, 1e-6);
  EXPECT_NEAR(metrics.tpot.mean, 150, 1e-6);
  EXPECT_NEAR(metrics.itl.mean, (100 + 200 + 200) / 3.0, 1e-6);
}

TEST(ComputeMetricsTest, LeavesRequestsOfOneTokenOutOfTpot) {
  const std::vector<RequestRecord> records = {Completed(0, {0.5}, 3, 1), Completed(0, {0.1, 0.3}, 3, 3)};
  const LoadMetrics metrics = ComputeMetrics(records, 1);
  EXPECT_NEAR(metrics.tpot.mean, 100, 1e-6);
  EXPECT_NEAR(metrics.ttft.mean, 300, 1e-6);
}

TEST(ComputeMetricsTest, CountsFailuresAndNothingElseOfThem) {
  RequestRecord failed = Completed(0, {0.1, 0.2}, 100, 50);
  failed.completed = false;
  const LoadMetrics metrics = ComputeMetrics({failed, Completed(0, {0.4}, 1, 1)}, 1);
  EXPECT_EQ(metrics.completed, 1);
  EXPECT_EQ(metrics.failed, 1);
  EXPECT_EQ(metrics.input_tokens, 1);
  EXPECT_EQ(metrics.output_tokens, 1);
  EXPECT_NEAR(metrics.ttft.mean, 400, 1e-6);
  EXPECT_EQ(metrics.itl.mean, 0);
}

TEST(ComputeMetricsTest, AnEmptyRunGivesZeros) {
  const LoadMetrics metrics = ComputeMetrics({}, 0);
  EXPECT_EQ(metrics.completed, 0);
  EXPECT_EQ(metrics.request_throughput, 0);
  EXPECT_EQ(metrics.e2el.p99, 0);
}

BenchResult SomeResult() {
  BenchResult result;
  result.date = "20260102-030405";
  result.model = "m";
  result.dataset = "random";
  result.concurrency = 8;
  result.num_requests = 2;
  result.metrics = ComputeMetrics({Completed(0, {0.1, 0.3}, 3, 3), RequestRecord()}, 0.5);
  result.errors["UNAVAILABLE: draining"] = 1;
  return result;
}

TEST(BenchReportTest, JsonHasTheNamesOfVllm) {
  const Json json = ReportJson(SomeResult());
  for (const char* key :
       {"duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
        "output_throughput", "total_token_throughput", "max_concurrency", "num_prompts", "model_id", "date"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* statistic : {"mean", "median", "std", "p50", "p90", "p99"}) {
      const std::string key = std::string(statistic) + "_" + metric + "_ms";
      EXPECT_TRUE(json.contains(key)) << key;
    }
  }
  EXPECT_EQ(json["completed"], 1);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_NEAR(json["mean_e2el_ms"].get<double>(), 300, 1e-6);
  EXPECT_NEAR(json["median_tpot_ms"].get<double>(), 100, 1e-6);
  EXPECT_EQ(json["errors"]["UNAVAILABLE: draining"], 1);
}

TEST(BenchReportTest, TextNamesEveryMetricAndError) {
  const std::string text = ReportText(SomeResult());
  for (const char* part : {"concurrency 8", "1 completed, 1 failed", "TTFT", "TPOT", "ITL", "E2E", "output tok/s",
                           "failed 1 x UNAVAILABLE: draining"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(BenchReportTest, ProgressBarFills) {
  EXPECT_EQ(ProgressBar("x", 0, 4), "x [........................................] 0/4");
  EXPECT_EQ(ProgressBar("x", 2, 4), "x [####################....................] 2/4");
  EXPECT_EQ(ProgressBar("x", 4, 4), "x [########################################] 4/4");
}

TEST(FormatTest, Bytes) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(4.0 * (1 << 30)), "4.0 GiB");
}

TEST(FormatTest, JsonLinesNeverThrowOnBrokenUtf8) {
  EXPECT_EQ(JsonLine({{"a", "\xff"}}), "{\"a\":\"\xef\xbf\xbd\"}\n");
}

}  // namespace
}  // namespace quire::cli
