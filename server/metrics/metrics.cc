#include "server/metrics/metrics.h"

#include <array>
#include <atomic>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "prometheus/histogram.h"
#include "server/metrics/metric_families.h"

namespace quire {
namespace {

using prometheus::Histogram;
using prometheus::MetricType;

// The bounds of vLLM, which dashboards are drawn for, and finer ones below where those begin too late for small models.
Histogram::BucketBoundaries FirstTokenSeconds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
Histogram::BucketBoundaries TokenSeconds() {
  return {0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
          0.4,    0.5,   0.75,  1,     2.5,  5,     7.5,  10,    20,  40,   80};
}
Histogram::BucketBoundaries RequestSeconds() {
  return {0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1,   1.5, 2,    2.5,
          5,     10,    15,   20,   30,   40,  50,  60,  120, 240, 480, 960, 1920, 7680};
}
Histogram::BucketBoundaries Tokens() {
  return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
}
Histogram::BucketBoundaries Sequences() { return {1, 2, 5, 10, 20}; }

// How requests end: those that the engine finished by its word, others by their status.
enum Outcome { kStop, kLength, kRepetition, kAbort, kCancelled, kDeadline, kOverload, kRefused, kError, kNumOutcomes };
constexpr std::array<const char*, kNumOutcomes> kOutcomeNames = {
    "stop", "length", "repetition", "abort", "cancelled", "deadline", "overload", "refused", "error"};

Outcome OutcomeOf(const RequestRecord& record) {
  switch (record.code) {
    case absl::StatusCode::kOk:
      return record.finish == "stop"         ? kStop
             : record.finish == "length"     ? kLength
             : record.finish == "repetition" ? kRepetition
                                             : kAbort;
    case absl::StatusCode::kCancelled:
      return kCancelled;
    case absl::StatusCode::kDeadlineExceeded:
      return kDeadline;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return kOverload;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
      return kRefused;
    default:
      return kError;
  }
}

}  // namespace

struct Metrics::Counts {
  static constexpr size_t kNumGrpcCodes = 17;

  Histogram first_token{FirstTokenSeconds()}, token_gap{TokenSeconds()}, per_token{TokenSeconds()};
  Histogram queue{RequestSeconds()}, prefill{RequestSeconds()}, decode{RequestSeconds()}, inference{RequestSeconds()},
      total{RequestSeconds()};
  Histogram prompt_tokens{Tokens()}, generation_tokens{Tokens()}, longest_output{Tokens()}, max_tokens{Tokens()};
  Histogram num_sequences{Sequences()};
  std::array<std::atomic<int64_t>, kNumOutcomes> outcomes = {};
  std::atomic<int64_t> cached_tokens = 0;
  std::array<std::atomic<int64_t>, kNumGrpcCodes> grpc = {};

  Mutex mutex;
  std::map<int, int64_t> http ABSL_GUARDED_BY(mutex);  // by status: our own choice, so there are few
};

Metrics::Metrics(MetricsOptions options) : options_(std::move(options)), counts_(std::make_unique<Counts>()) {}
Metrics::~Metrics() = default;

void Metrics::OnToken(absl::Duration gap, bool is_first) {
  (is_first ? counts_->first_token : counts_->token_gap).Observe(absl::ToDoubleSeconds(gap));
}

void Metrics::OnFinished(const RequestRecord& record) {
  counts_->outcomes[OutcomeOf(record)].fetch_add(1, std::memory_order_relaxed);
  if (record.code != absl::StatusCode::kOk || record.usage.completion_tokens == 0) return;
  const Timings& timings = record.timings;
  counts_->queue.Observe(absl::ToDoubleSeconds(timings.queue));
  counts_->prefill.Observe(absl::ToDoubleSeconds(timings.prefill));
  counts_->decode.Observe(absl::ToDoubleSeconds(timings.decode));
  counts_->inference.Observe(absl::ToDoubleSeconds(timings.prefill + timings.decode));
  counts_->total.Observe(absl::ToDoubleSeconds(timings.total));
  if (record.longest_output > 1)
    counts_->per_token.Observe(absl::ToDoubleSeconds(timings.decode) / (record.longest_output - 1));
  counts_->prompt_tokens.Observe(record.usage.prompt_tokens);
  counts_->generation_tokens.Observe(record.usage.completion_tokens);
  counts_->longest_output.Observe(record.longest_output);
  counts_->max_tokens.Observe(record.max_tokens);
  counts_->num_sequences.Observe(record.num_sequences);
  counts_->cached_tokens.fetch_add(record.usage.cached_tokens, std::memory_order_relaxed);
}

void Metrics::OnHttpAnswer(int status) {
  MutexLock lock(&counts_->mutex);
  ++counts_->http[status];
}

void Metrics::OnGrpcStatus(int code) {
  if (code < 0 || code >= static_cast<int>(Counts::kNumGrpcCodes)) return;
  counts_->grpc[code].fetch_add(1, std::memory_order_relaxed);
}

std::string Metrics::Text(const Frontend& frontend) const {
  MetricFamilies families(options_.model_name, options_.vllm_names);
  families.Begin("quire_build_info", nullptr, "1; its labels say what this is.", MetricType::Gauge);
  families.Add(1, {{"version", options_.version}, {"architecture", frontend.info().config.architecture}});
  AddEngineFamilies(frontend.GetEngineStats(), frontend.info(), &families);

  families.Begin("quire_requests_live", nullptr, "Requests between their arrival and their end.", MetricType::Gauge);
  families.Add(static_cast<double>(frontend.num_live_requests()));
  const auto count = [this](int outcome) {
    return static_cast<double>(counts_->outcomes[outcome].load(std::memory_order_relaxed));
  };
  families.Begin("quire_requests_total", nullptr, "Requests that have ended, by how.", MetricType::Counter);
  for (int i = 0; i < kNumOutcomes; ++i) families.Add(count(i), {{"outcome", kOutcomeNames[i]}});
  families.BeginVllm("vllm:request_success_total", "Requests that have ended, by how.", MetricType::Counter);
  for (const int i : {kStop, kLength, kRepetition, kAbort, kError})
    families.Add(count(i), {{"finished_reason", kOutcomeNames[i]}});
  families.Begin("quire_cached_prompt_tokens_total", "vllm:prompt_tokens_cached_total",
                 "Prompt tokens of finished requests that were not computed.", MetricType::Counter);
  families.Add(static_cast<double>(counts_->cached_tokens.load(std::memory_order_relaxed)));

  const auto add = [&families](const char* name, const char* vllm_name, const char* help, const Histogram& histogram) {
    families.Begin(name, vllm_name, help, MetricType::Histogram);
    families.Add(histogram.Collect());
  };
  add("quire_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", "From arrival to the first token.",
      counts_->first_token);
  add("quire_inter_token_latency_seconds", "vllm:inter_token_latency_seconds", "From one token to the next.",
      counts_->token_gap);
  add("quire_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds",
      "Decoding time of a request per token.", counts_->per_token);
  add("quire_request_queue_seconds", "vllm:request_queue_time_seconds", "From arrival to the first step.",
      counts_->queue);
  add("quire_request_prefill_seconds", "vllm:request_prefill_time_seconds", "From the first step to the first token.",
      counts_->prefill);
  add("quire_request_decode_seconds", "vllm:request_decode_time_seconds", "From the first token to the last.",
      counts_->decode);
  add("quire_request_inference_seconds", "vllm:request_inference_time_seconds",
      "From the first step to the last token.", counts_->inference);
  add("quire_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds", "From arrival to the last token.",
      counts_->total);
  add("quire_request_prompt_tokens", "vllm:request_prompt_tokens", "Prompt tokens of a request.",
      counts_->prompt_tokens);
  add("quire_request_generation_tokens", "vllm:request_generation_tokens", "Tokens that a request generated.",
      counts_->generation_tokens);
  add("quire_request_longest_output_tokens", "vllm:request_max_num_generation_tokens",
      "Tokens of the longest sequence of a request.", counts_->longest_output);
  add("quire_request_max_tokens", "vllm:request_params_max_tokens", "Tokens that a request might generate a sequence.",
      counts_->max_tokens);
  add("quire_request_sequences", "vllm:request_params_n", "Sequences of a request.", counts_->num_sequences);

  families.Begin("quire_http_requests_total", nullptr, "Requests over HTTP, by status.", MetricType::Counter);
  {
    MutexLock lock(&counts_->mutex);
    for (const auto& [status, number] : counts_->http)
      families.Add(static_cast<double>(number), {{"code", absl::StrCat(status)}});
  }
  families.Begin("quire_grpc_requests_total", nullptr, "Calls over gRPC, by status.", MetricType::Counter);
  for (size_t code = 0; code < counts_->grpc.size(); ++code) {
    families.Add(static_cast<double>(counts_->grpc[code].load(std::memory_order_relaxed)),
                 {{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}});
  }
  return families.Text();
}

}  // namespace quire
