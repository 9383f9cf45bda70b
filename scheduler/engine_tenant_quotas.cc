#include "scheduler/engine_tenant_quotas.h"

#include <cmath>

namespace quire {

TenantQuotas::TenantQuotas(const EngineOptions& options) : default_share_(options.tenant_kv_quota) {
  for (const auto& [tenant, share] : options.tenant_kv_quotas) shares_[tenant] = share;
}

void TenantQuotas::Meet(const EngineRequest& request, BlockManager& blocks) {
  const auto tenant = static_cast<size_t>(request.tenant);
  if (tenant == 0 || (tenant < met_.size() && met_[tenant])) return;
  if (tenant >= met_.size()) met_.resize(tenant + 1);
  met_[tenant] = true;
  const auto named = shares_.find(request.tenant_name);
  const double share = named == shares_.end() ? default_share_ : named->second;
  if (share < 1) blocks.SetTenantQuota(request.tenant, static_cast<int32_t>(std::floor(share * blocks.stats().total)));
}

}  // namespace quire
