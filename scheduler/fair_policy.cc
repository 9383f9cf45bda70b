#include "scheduler/fair_policy.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "kernels/base/check.h"

namespace quire {

FairPolicy::FairPolicy(const std::vector<std::pair<std::string, double>>& weights) {
  for (const auto& [tenant, weight] : weights) {
    QUIRE_CHECK(weight > 0 && std::isfinite(weight));
    weights_[tenant] = weight;
  }
}

void FairPolicy::Place(SequenceGroup* group, int64_t step) {
  Lane* lane = LaneOf(group->request.tenant_name);
  if (lane->waiting[0].empty() && lane->waiting[1].empty()) Lift(lane);
  if (lane->num_requests++ == 0) --num_idle_;
  group->lane = lane;
  group->rank = PriorityPolicy::AgedRank(*group, step);
}

void FairPolicy::Forget(const SequenceGroup& group) {
  if (--group.lane->num_requests > 0) return;
  if (++num_idle_ > kMaxIdleTenants) ForgetOneIdle();
}

Lane* FairPolicy::LaneOf(const std::string& tenant) {
  std::unique_ptr<Lane>& lane = lanes_[tenant];
  if (lane == nullptr) {
    lane = std::make_unique<Lane>();
    lane->tenant = tenant;
    const auto weight = weights_.find(tenant);
    if (weight != weights_.end()) lane->weight = weight->second;
    ++num_idle_;
  }
  return lane.get();
}

// A tenant that had nothing waiting starts level with the least served of the others.
void FairPolicy::Lift(Lane* lane) const {
  std::optional<double> least;
  for (const auto& [tenant, other] : lanes_) {
    if (other.get() == lane || other->num_requests == 0) continue;
    least = std::min(least.value_or(other->charge()), other->charge());
  }
  if (!least.has_value() || lane->charge() >= *least) return;
  lane->served = static_cast<int64_t>(std::ceil(*least * lane->weight)) - lane->committed;
}

void FairPolicy::ForgetOneIdle() {
  auto least = lanes_.end();
  for (auto it = lanes_.begin(); it != lanes_.end(); ++it) {
    if (it->second->num_requests > 0) continue;
    // By name among equals: the order of a hash table is another one in each process.
    const auto rank = [](const auto& entry) {
      return std::make_pair(entry->second->charge(), std::string_view(entry->first));
    };
    if (least == lanes_.end() || rank(it) < rank(least)) least = it;
  }
  lanes_.erase(least);
  --num_idle_;
}

}  // namespace quire
