#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "block_manager/block.h"

namespace quire {

// Told of every call that changes what a BlockManager decides and does not concern one table: before it takes effect,
// and of what came of it. For records (scheduler/trace). Called on the manager's thread; must not call back.
class BlockManagerObserver {
 public:
  virtual ~BlockManagerObserver() = default;

  virtual void OnAdvanceTime(absl::Time now) = 0;
  virtual void OnSetTenantQuota(int32_t tenant, int32_t max_blocks) = 0;
  virtual void OnDropPrefix(const BlockHash& root, absl::Span<const int32_t> tokens) = 0;
  virtual void OnDropTenant(int32_t tenant) = 0;
  virtual void OnDropAll() = 0;
  // After each of the last three: blocks that nobody finds any more.
  virtual void OnDropped(int32_t num_blocks) = 0;
};

}  // namespace quire
