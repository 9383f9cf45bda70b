#pragma once

#include <cstdint>

namespace quire {

struct SchedulerOptions {
  int32_t max_num_seqs = 256;             // sequences in one step, [1, 65536]
  int32_t max_num_batched_tokens = 2048;  // tokens in one step, [1, 1048576]; may be below max_num_seqs
  bool enable_prefix_caching = true;
};

}  // namespace quire
