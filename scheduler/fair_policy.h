#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "scheduler/scheduling_policy.h"

namespace quire {

// A virtual token counter for each tenant (Sheng et al., "Fairness in Serving Large Language Models", 2024): the tenant
// with the smallest count over weight goes first; within a tenant, priority with ageing.
class FairPolicy : public SchedulingPolicy {
 public:
  explicit FairPolicy(const std::vector<std::pair<std::string, double>>& weights);

  void Place(SequenceGroup* group, int64_t step) override;
  void Forget(const SequenceGroup& group) override;

  int32_t num_tenants() const { return static_cast<int32_t>(lanes_.size()); }
  // Tenants without requests that are remembered, so that leaving does not clear a debt. Beyond, the smallest goes.
  static constexpr int32_t kMaxIdleTenants = 1024;

 private:
  Lane* LaneOf(const std::string& tenant);
  void Lift(Lane* lane) const;
  void ForgetOneIdle();

  absl::flat_hash_map<std::string, double> weights_;
  absl::flat_hash_map<std::string, std::unique_ptr<Lane>> lanes_;
  int32_t num_idle_ = 0;
};

}  // namespace quire
