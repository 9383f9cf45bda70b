#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "model/forward_batch.h"

namespace quire {

struct BatchLimits {
  int32_t max_tokens = 0;
  int32_t max_seqs = 0;
  int32_t vocab_size = 0;
  int32_t num_blocks = 0;
  int32_t block_size = 0;
  int32_t num_groups = 1;
  int32_t num_host_blocks = 0;
};

// kInvalidArgument naming the field unless the batch keeps to forward_batch.h and to the limits. Costs one pass over
// the batch and allocates nothing.
absl::Status CheckBatch(const ForwardBatch& batch, const BatchLimits& limits);

}  // namespace quire
