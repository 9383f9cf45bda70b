#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace quire::testing {

// What one string of operations exercised.
struct BlockOpsCounts {
  int64_t operations = 0, hits = 0, partial_hits = 0, evictions = 0, copies = 0, refusals = 0, failed_steps = 0;
  int64_t copied_out = 0, copied_in = 0;  // to the host tier and back
  int64_t pages_out = 0, pages_in = 0;    // likewise, with layer groups
};

// Runs a string of operations on a block manager and on the naive one, over a shadow memory, and compares everything
// after each: sequences begin, grow, fork, seal and end, also between a plan and its step; steps complete or fail;
// blocks run out, or allocation fails at the i-th; time passes; quotas change; prefixes are dropped; evicted blocks go
// to a host tier and come back. The first bytes choose the options (pool of 8 to 64 blocks, block size 1 to 32, policy,
// colliding keys, ...), the rest the operations. Any bytes are legal.
//
// Returns what went wrong first, with the number of the operation; "" if nothing did.
std::string RunBlockOps(absl::Span<const uint8_t> bytes, BlockOpsCounts* counts);

}  // namespace quire::testing
