// /metrics: the text, what it counts, and how many series it can have.
#include "server/metrics/metrics.h"

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/collecting_sink.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using ::quire::testing::CollectingSink;
using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;

// Series of the text format, "name{labels}" to value. Checks what a scraper would refuse.
using Series = std::map<std::string, double>;

Series Parse(const std::string& text) {
  Series series;
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (absl::StartsWith(line, "# HELP ")) continue;
    if (absl::StartsWith(line, "# TYPE ")) {
      std::istringstream words(line.substr(7));
      std::string name, type;
      words >> name >> type;
      EXPECT_TRUE(types.emplace(name, type).second) << name << " is declared twice";
      continue;
    }
    const size_t space = line.rfind(' ');
    const std::string key = line.substr(0, space);
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(series.emplace(key, value).second) << key << " is there twice";
    std::string family = key.substr(0, key.find('{'));
    for (const char* const suffix : {"_bucket", "_sum", "_count"}) {
      const std::string base = family.substr(0, family.size() - std::min(family.size(), std::string(suffix).size()));
      if (absl::EndsWith(family, suffix) && types.count(base) > 0 && types[base] == "histogram") family = base;
    }
    EXPECT_EQ(types.count(family), 1u) << line;
    if (types[family] == "counter") {
      EXPECT_TRUE(absl::EndsWith(family, "_total")) << family;
      EXPECT_GE(value, 0) << line;
    }
  }
  return series;
}

double Sum(const Series& series, const std::string& name) {
  double sum = 0;
  for (const auto& [key, value] : series) sum += key.substr(0, key.find('{')) == name ? value : 0;
  return sum;
}

class MetricsTest : public ::testing::Test {
 protected:
  explicit MetricsTest(bool vllm_names = true) : metrics_({"served", "1.2.3", vllm_names}) {
    FrontendOptions options;
    options.served_model_names = {"served"};
    options.on_finished = [this](const RequestRecord& record) { metrics_.OnFinished(record); };
    options.on_token = [this](absl::Duration gap, bool is_first) { metrics_.OnToken(gap, is_first); };
    frontend_ = std::make_unique<Frontend>(engine_, tokenizer_, options);
  }

  // Runs a request to its end: `text`, then a last token with `reason`.
  void Run(GenerateRequest request, const std::string& text, FinishReason reason) {
    sink_ = std::make_shared<CollectingSink>();
    request.prompt = "hi";
    const auto handle = frontend_->Generate(std::move(request), sink_);
    ASSERT_TRUE(handle.ok()) << handle.status();
    engine_.WaitForRequest(++num_started_);
    for (const char c : text) engine_.EmitToken(*handle, static_cast<unsigned char>(c));
    engine_.EmitToken(*handle, reason == FinishReason::kStop ? 257 : 'z', reason);
    sink_->WaitForEnd();
    EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  }
  Series Scrape() { return Parse(metrics_.Text(*frontend_)); }

  FakeEngine engine_;
  FakeTokenizer tokenizer_;
  Metrics metrics_;
  std::shared_ptr<CollectingSink> sink_;
  size_t num_started_ = 0;
  std::unique_ptr<Frontend> frontend_;  // last: its threads use the rest
};

TEST_F(MetricsTest, HasWhatScriptsAndDashboardsRelyOn) {
  const std::string text = metrics_.Text(*frontend_);
  Parse(text);
  for (const char* const name : {"quire_requests_running",
                                 "quire_requests_waiting",
                                 "quire_kv_blocks",
                                 "quire_kv_cache_usage_ratio",
                                 "quire_preemptions_total",
                                 "quire_prefix_cache_query_tokens_total",
                                 "quire_prefix_cache_hit_tokens_total",
                                 "quire_evictions_total",
                                 "quire_requests_total",
                                 "quire_spec_decode_accepted_tokens_total",
                                 "quire_prompt_tokens_total",
                                 "quire_generation_tokens_total",
                                 "quire_time_to_first_token_seconds",
                                 "quire_inter_token_latency_seconds",
                                 "quire_e2e_request_latency_seconds",
                                 "quire_step_seconds",
                                 "quire_build_info",
                                 "quire_grpc_requests_total",
                                 "vllm:num_requests_running",
                                 "vllm:num_requests_waiting",
                                 "vllm:kv_cache_usage_perc",
                                 "vllm:cache_config_info",
                                 "vllm:prompt_tokens_total",
                                 "vllm:generation_tokens_total",
                                 "vllm:request_success_total",
                                 "vllm:num_preemptions_total",
                                 "vllm:spec_decode_num_drafts_total",
                                 "vllm:spec_decode_num_draft_tokens_total",
                                 "vllm:spec_decode_num_accepted_tokens_total",
                                 "vllm:prefix_cache_queries_total",
                                 "vllm:prefix_cache_hits_total",
                                 "vllm:time_to_first_token_seconds",
                                 "vllm:inter_token_latency_seconds",
                                 "vllm:e2e_request_latency_seconds",
                                 "vllm:request_queue_time_seconds",
                                 "vllm:request_prefill_time_seconds",
                                 "vllm:request_decode_time_seconds",
                                 "vllm:iteration_tokens_total"}) {
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat("# TYPE ", name, " "))) << name;
  }
  for (const char* const part : {"quire_kv_blocks{model_name=\"served\",state=\"free\"}",
                                 "quire_preemptions_total{model_name=\"served\",mode=\"swap\"}", "block_size=\"4\"",
                                 "version=\"1.2.3\"", "quire_requests_total{model_name=\"served\",outcome=\"stop\"} 0",
                                 "quire_step_seconds_count{model_name=\"served\",part=\"scheduling\"} 0"}) {
    EXPECT_TRUE(absl::StrContains(text, part)) << part;
  }
}

TEST_F(MetricsTest, B203_TimesAreMeasuredWhereTheyHappenAndAddUp) {
  Run({}, "abc", FinishReason::kStop);
  const Series series = Scrape();
  EXPECT_NEAR(Sum(series, "quire_e2e_request_latency_seconds_sum"), absl::ToDoubleSeconds(sink_->timings.total), 1e-9);
  EXPECT_EQ(Sum(series, "quire_e2e_request_latency_seconds_count"), 1);
  EXPECT_EQ(Sum(series, "vllm:e2e_request_latency_seconds_count"), 1);
  EXPECT_EQ(Sum(series, "quire_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(Sum(series, "quire_inter_token_latency_seconds_count"), 3);
  EXPECT_LE(Sum(series, "quire_time_to_first_token_seconds_sum") + Sum(series, "quire_inter_token_latency_seconds_sum"),
            Sum(series, "quire_e2e_request_latency_seconds_sum") + 1e-9);
  EXPECT_EQ(Sum(series, "quire_request_prompt_tokens_sum"), 3);  // begin, h, i
  EXPECT_EQ(Sum(series, "quire_request_generation_tokens_sum"), 4);
  EXPECT_EQ(series.at("quire_request_generation_tokens_bucket{model_name=\"served\",le=\"2\"}"), 0);
  EXPECT_EQ(series.at("quire_request_generation_tokens_bucket{model_name=\"served\",le=\"5\"}"), 1);
}

TEST_F(MetricsTest, B204_CountersOnlyGrow) {
  Series before = Scrape();
  const auto step = [&](const std::string& outcome) {
    const Series after = Scrape();
    for (const auto& [key, value] : before) {
      ASSERT_EQ(after.count(key), 1u) << key << " has gone";
      const std::string name = key.substr(0, key.find('{'));
      if (absl::EndsWith(name, "_total") || absl::EndsWith(name, "_count")) {
        EXPECT_GE(after.at(key), value) << key;
      }
    }
    const std::string key = absl::StrCat("quire_requests_total{model_name=\"served\",outcome=\"", outcome, "\"}");
    EXPECT_EQ(after.at(key), before.at(key) + 1);
    before = after;
  };
  Run({}, "ab", FinishReason::kStop);
  step("stop");
  Run({}, "", FinishReason::kLength);
  step("length");

  const auto start = [&] {
    sink_ = std::make_shared<CollectingSink>();
    GenerateRequest request;
    request.prompt = "hi";
    request.request_id = "id";
    const uint64_t handle = *frontend_->Generate(std::move(request), sink_);
    engine_.WaitForRequest(++num_started_);
    return handle;
  };
  frontend_->Cancel(start());
  sink_->WaitForEnd();
  EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  step("cancelled");
  start();
  frontend_->Abort({"id"});
  sink_->WaitForEnd();
  EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  step("abort");
  engine_.RefuseWith(absl::ResourceExhaustedError("full"));
  sink_ = std::make_shared<CollectingSink>();
  GenerateRequest request;
  request.prompt = "hi";
  ASSERT_TRUE(frontend_->Generate(std::move(request), sink_).ok());
  sink_->WaitForEnd();
  EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  step("overload");
}

TEST_F(MetricsTest, ClientsCannotMakeSeries) {
  for (const int status : {200, 400, 404, 429, 503}) metrics_.OnHttpAnswer(status);
  Run({}, "a", FinishReason::kLength);
  const size_t series = Scrape().size();
  for (int i = 0; i < 50; ++i) {
    GenerateRequest request;
    request.tenant = absl::StrCat("tenant", i);
    request.request_id = absl::StrCat("id", i);
    request.cache.salt = absl::StrCat("salt", i);
    request.max_tokens = i + 1;
    Run(std::move(request), "a", FinishReason::kLength);
    metrics_.OnGrpcStatus(i);
  }
  EXPECT_EQ(Scrape().size(), series);
  EXPECT_LT(series, 2000u);
  EXPECT_EQ(Sum(Scrape(), "quire_http_requests_total"), 5);
  EXPECT_EQ(Sum(Scrape(), "quire_grpc_requests_total"), 17);
}

class OwnNamesTest : public MetricsTest {
 protected:
  OwnNamesTest() : MetricsTest(/*vllm_names=*/false) {}
};

TEST_F(OwnNamesTest, WithoutCompatibilityThereAreOwnNamesOnly) {
  EXPECT_FALSE(absl::StrContains(metrics_.Text(*frontend_), "vllm:"));
}

}  // namespace
}  // namespace quire
