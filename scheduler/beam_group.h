#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/beam_search.h"

namespace quire {

// The beams of one request. Live beam i is sequence slots[i] of the group; other sequences are kBlocked and empty.
//
// A beam whose last token is computed waits for the others of its request with nothing to compute. It may be preempted
// then, to kBlocked: what it has offered is kept, so beams need not be in memory at once.
struct BeamGroup {
  BeamSearch search;
  std::vector<int32_t> slots = {0};
};

}  // namespace quire
