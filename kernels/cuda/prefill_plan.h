#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

// How the rows of a prefill or mixed step are cut into tiles: pure arithmetic on the host, once a step.
namespace quire::cuda {

// 64 packed rows of a sequence from `first_row` on. Packed row r is query token r / group, head r % group of the KV
// head's group.
struct PrefillTile {
  int32_t sequence = 0;
  int32_t first_row = 0;
};
inline constexpr int32_t kPrefillRows = 64;

// The tiles of a batch, those with most keys first. cu_q_lens: [S + 1].
inline void PlanPrefill(absl::Span<const int32_t> cu_q_lens, int32_t group, std::vector<PrefillTile>* tiles) {
  tiles->clear();
  for (size_t s = 0; s + 1 < cu_q_lens.size(); ++s) {
    const int32_t rows = (cu_q_lens[s + 1] - cu_q_lens[s]) * group;
    const int32_t last = (rows - 1) / kPrefillRows * kPrefillRows;
    for (int32_t first = rows > 0 ? last : -1; first >= 0; first -= kPrefillRows) {
      tiles->push_back({static_cast<int32_t>(s), first});
    }
  }
}

}  // namespace quire::cuda
