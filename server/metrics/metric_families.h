#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "server/frontend/frontend.h"

namespace quire {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Families of one scrape in the making: each under its own name and, where vLLM has one, under that too. Not
// thread-safe.
class MetricFamilies {
 public:
  MetricFamilies(std::string model_name, bool vllm_names);

  // The next family; `vllm_name` may be null. What is added from here on belongs to it.
  void Begin(const char* name, const char* vllm_name, const char* help, prometheus::MetricType type);
  // One that only vLLM's names have.
  void BeginVllm(const char* name, const char* help, prometheus::MetricType type);
  // A value of a counter or a gauge.
  void Add(double value, const MetricLabels& labels = {});
  // A histogram that was collected.
  void Add(prometheus::ClientMetric histogram, const MetricLabels& labels = {});
  void Add(const BucketCounts& counts, const BucketCounts::Bounds& bounds, const MetricLabels& labels = {});

  std::string Text() const;

 private:
  const std::string model_name_;
  const bool vllm_names_;
  std::vector<prometheus::MetricFamily> families_;
  size_t begun_ = 0;  // families_ from here on are the one that was begun last
};

// Everything that the engine counts by itself.
void AddEngineFamilies(const EngineStats& stats, const EngineInfo& info, MetricFamilies* families);

}  // namespace quire
