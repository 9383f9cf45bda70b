#include "scheduler/scheduling_policy.h"

#include "kernels/base/check.h"
#include "scheduler/deadline_policy.h"
#include "scheduler/fair_policy.h"

namespace quire {

std::unique_ptr<SchedulingPolicy> CreatePolicy(const SchedulerOptions& options, const StepTimeModel* model) {
  switch (options.policy) {
    case PolicyKind::kFcfs:
      return std::make_unique<FcfsPolicy>();
    case PolicyKind::kPriority:
      return std::make_unique<PriorityPolicy>();
    case PolicyKind::kDeadline:
      return std::make_unique<DeadlinePolicy>(model);
    case PolicyKind::kFair:
      return std::make_unique<FairPolicy>(options.tenant_weights);
  }
  QUIRE_CHECK(false);
  return nullptr;
}

}  // namespace quire
