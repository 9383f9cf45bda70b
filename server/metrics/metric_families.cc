#include "server/metrics/metric_families.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "prometheus/text_serializer.h"

namespace quire {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

// A number of the engine's statistics that is a series by itself.
struct Row {
  const char* name;
  const char* vllm_name;
  const char* help;
  MetricType type;
  double (*value)(const EngineStats& stats);
};

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

constexpr Row kRows[] = {
    {"quire_requests_running", "vllm:num_requests_running", "Requests in execution.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return stats.requests_running; }},
    {"quire_requests_waiting", "vllm:num_requests_waiting", "Requests that wait to be started.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return stats.requests_waiting; }},
    {"quire_requests_held", nullptr, "Requests that wait for their reader.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return stats.requests_held; }},
    {"quire_waiting_prompt_tokens", nullptr, "Prompt tokens of requests that wait to be started.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.waiting_prompt_tokens); }},
    {"quire_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc", "Share of the KV blocks that requests hold, 0 to 1.",
     MetricType::Gauge, [](const EngineStats& stats) { return Ratio(stats.kv_blocks_active, stats.kv_blocks_total); }},
    {"quire_host_kv_blocks", nullptr, "KV blocks in use on the host.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return stats.host_blocks_used; }},
    {"quire_engine_healthy", nullptr, "1 while steps end in time, else 0.", MetricType::Gauge,
     [](const EngineStats& stats) -> double { return stats.healthy ? 1 : 0; }},
    {"quire_prefix_cache_query_tokens_total", "vllm:prefix_cache_queries_total",
     "Prompt tokens that were looked up in the prefix cache.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.prefix_query_tokens); }},
    {"quire_prefix_cache_hit_tokens_total", "vllm:prefix_cache_hits_total",
     "Prompt tokens that were found in the prefix cache.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.prefix_hit_tokens); }},
    {"quire_evictions_total", nullptr, "Blocks that the prefix cache gave up.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.evictions); }},
    {"quire_swap_out_bytes_total", nullptr, "KV bytes copied to the host.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.host_bytes_out); }},
    {"quire_swap_in_bytes_total", nullptr, "KV bytes copied back from the host.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.host_bytes_in); }},
    {"quire_prompt_tokens_total", "vllm:prompt_tokens_total", "Prompt tokens of requests that were started.",
     MetricType::Counter, [](const EngineStats& stats) -> double { return static_cast<double>(stats.prompt_tokens); }},
    {"quire_generation_tokens_total", "vllm:generation_tokens_total", "Tokens that were generated.",
     MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.generation_tokens); }},
    {"quire_surplus_tokens_total", nullptr, "Tokens computed in vain behind the end of a sequence.",
     MetricType::Counter, [](const EngineStats& stats) -> double { return static_cast<double>(stats.surplus_tokens); }},
    {"quire_spec_decode_drafts_total", "vllm:spec_decode_num_drafts_total", "Steps of sequences that checked drafts.",
     MetricType::Counter, [](const EngineStats& stats) -> double { return static_cast<double>(stats.drafting_steps); }},
    {"quire_spec_decode_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
     "Tokens that were drafted and checked.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.drafted_tokens); }},
    {"quire_spec_decode_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
     "Drafted tokens that became output.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.accepted_tokens); }},
    {"quire_steps_total", nullptr, "Steps of the engine.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.steps); }},
    {"quire_output_queue_waits_total", nullptr, "Steps that waited for a detokenizer thread.", MetricType::Counter,
     [](const EngineStats& stats) -> double { return static_cast<double>(stats.output_queue_waits); }},
};

}  // namespace

MetricFamilies::MetricFamilies(std::string model_name, bool vllm_names)
    : model_name_(std::move(model_name)), vllm_names_(vllm_names) {}

void MetricFamilies::Begin(const char* name, const char* vllm_name, const char* help, MetricType type) {
  begun_ = families_.size();
  for (const char* const each : {name, vllm_names_ ? vllm_name : nullptr}) {
    if (each != nullptr) families_.push_back({each, help, type, {}});
  }
}

void MetricFamilies::BeginVllm(const char* name, const char* help, MetricType type) {
  begun_ = families_.size();
  if (vllm_names_) families_.push_back({name, help, type, {}});
}

void MetricFamilies::Add(double value, const MetricLabels& labels) {
  if (begun_ == families_.size()) return;
  ClientMetric metric;
  (families_[begun_].type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) = value;
  Add(std::move(metric), labels);
}

void MetricFamilies::Add(ClientMetric metric, const MetricLabels& labels) {
  for (size_t i = begun_; i < families_.size(); ++i) {
    metric.label = {{"model_name", model_name_}};
    if (families_[i].name.starts_with("vllm:")) metric.label.push_back({"engine", "0"});
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    families_[i].metric.push_back(metric);
  }
}

void MetricFamilies::Add(const BucketCounts& counts, const BucketCounts::Bounds& bounds, const MetricLabels& labels) {
  ClientMetric metric;
  uint64_t seen = 0;
  for (size_t i = 0; i < counts.counts.size(); ++i) {
    seen += static_cast<uint64_t>(counts.counts[i]);
    const double bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({seen, bound});
  }
  metric.histogram.sample_count = seen;
  metric.histogram.sample_sum = counts.sum;
  Add(std::move(metric), labels);
}

std::string MetricFamilies::Text() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families_);
  return out.str();
}

void AddEngineFamilies(const EngineStats& stats, const EngineInfo& info, MetricFamilies* families) {
  for (const Row& row : kRows) {
    families->Begin(row.name, row.vllm_name, row.help, row.type);
    families->Add(row.value(stats));
  }
  families->Begin("quire_kv_blocks", nullptr, "KV blocks of the pool by what they are.", MetricType::Gauge);
  families->Add(stats.kv_blocks_free, {{"state", "free"}});
  families->Add(stats.kv_blocks_cached, {{"state", "cached"}});
  families->Add(stats.kv_blocks_active, {{"state", "active"}});
  families->Begin("quire_preemptions_total", nullptr, "Requests that lost their place, by what became of their blocks.",
                  MetricType::Counter);
  families->Add(static_cast<double>(stats.preemptions - stats.swaps), {{"mode", "recompute"}});
  families->Add(static_cast<double>(stats.swaps), {{"mode", "swap"}});
  families->BeginVllm("vllm:num_preemptions_total", "Requests that lost their place.", MetricType::Counter);
  families->Add(static_cast<double>(stats.preemptions));
  families->Begin("quire_cache_config_info", "vllm:cache_config_info", "1; its labels describe the KV cache.",
                  MetricType::Gauge);
  families->Add(1, {{"block_size", absl::StrCat(info.block_size)},
                    {"num_gpu_blocks", absl::StrCat(info.num_kv_blocks)},
                    {"enable_prefix_caching", info.prefix_cache_enabled ? "True" : "False"}});
  const EngineStats::StepCounts& steps = stats.step_counts;
  families->Begin("quire_step_seconds", nullptr, "Time of steps, by part.", MetricType::Histogram);
  const auto add = [families](const char* part, const BucketCounts& counts) {
    families->Add(counts, EngineStats::StepCounts::kSeconds, {{"part", part}});
  };
  add("linear", steps.linear);
  add("attention", steps.attention);
  add("sampling", steps.sampling);
  add("scheduling", steps.scheduling);
  add("rest", steps.rest);
  add("total", steps.total);
  families->Begin("quire_step_tokens", "vllm:iteration_tokens_total", "Tokens that steps computed.",
                  MetricType::Histogram);
  families->Add(steps.tokens, EngineStats::StepCounts::kTokens);
}

}  // namespace quire
