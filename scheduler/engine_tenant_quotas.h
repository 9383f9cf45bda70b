#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "block_manager/block_manager.h"
#include "scheduler/engine_options.h"
#include "scheduler/request.h"

namespace quire {

// Gives tenants their quota of the prefix cache when their first request comes: only then their numbers are known.
// Not thread-safe: the engine thread owns it.
class TenantQuotas {
 public:
  explicit TenantQuotas(const EngineOptions& options);

  // A request is about to be added. The unnamed tenant has no quota.
  void Meet(const EngineRequest& request, BlockManager& blocks);

 private:
  const double default_share_;
  absl::flat_hash_map<std::string, double> shares_;
  std::vector<bool> met_;  // by tenant
};

}  // namespace quire
