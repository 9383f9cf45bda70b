#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config.h"
#include "scheduler/engine_options.h"

namespace quire {

// Numbers that follow from options, model and machine.
struct EngineSizes {
  int32_t block_size = 0;     // tokens
  int32_t num_kv_blocks = 0;  // usable; the null block comes on top
  int32_t num_host_blocks = 0;
  int32_t max_model_len = 0;  // tokens of a sequence, at most what the pool holds
};

// kFailedPrecondition naming the option, its value and its range.
absl::Status ValidateEngineOptions(const EngineOptions& options);

// `block_bytes_per_token`: what a token takes up in a block, that is on the layers of one group. `memory_bytes`: what
// the process may use; bounds the pool, and the default pool is a quarter of it and at most 4 GiB. REQUIRES: valid
// options. kFailedPrecondition for a pool without a single block, for one above `memory_bytes` or 2^31 - 1 slots, for a
// max_model_len above what the pool holds (above the model's, it is cut to that), or for a host tier above
// `host_memory_bytes`, which are `memory_bytes` unless those are a device's own.
absl::StatusOr<EngineSizes> SizeEngine(const EngineOptions& options, const ModelConfig& config,
                                       int64_t block_bytes_per_token, int64_t memory_bytes,
                                       const std::vector<int32_t>& group_windows = {0},
                                       std::optional<int64_t> host_memory_bytes = std::nullopt);

}  // namespace quire
