#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/frontend/frontend.h"

namespace quire {

struct MetricsOptions {
  std::string model_name;   // label of every series
  std::string version;      // of quire_build_info
  bool vllm_names = false;  // also under the names that vLLM's dashboards and gateways ask for
};

// What a Prometheus server scrapes: counters and gauges of the engine, read when asked for; histograms of requests and
// tokens, counted where they end and come, which is never on the engine thread. No label has a value from outside: the
// number of series is bounded. This header brings nothing of prometheus-cpp. Any thread.
class Metrics {
 public:
  explicit Metrics(MetricsOptions options);
  ~Metrics();

  // As FrontendOptions has them.
  void OnToken(absl::Duration gap, bool is_first);
  void OnFinished(const RequestRecord& record);
  // An answer over HTTP begins with `status`; a call over gRPC ended with `code` (0 .. 16, others are ignored).
  void OnHttpAnswer(int status);
  void OnGrpcStatus(int code);

  // The text format 0.0.4 of all that is known.
  std::string Text(const Frontend& frontend) const;

 private:
  struct Counts;

  const MetricsOptions options_;
  const std::unique_ptr<Counts> counts_;
};

}  // namespace quire
