#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Ends of batches: copies [0, ends[0]), [ends[0], ends[1]), ... in order. Within a batch no destination is another
// copy's source or destination, so its copies may run at once; batches run one after the other. So the result is that
// of all copies in order. A copy onto itself is alone in its batch.
inline std::vector<int32_t> IndependentCopies(absl::Span<const BlockCopyIds> copies) {
  std::vector<int32_t> ends;
  size_t begin = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    for (size_t before = begin; before < i; ++before) {
      const BlockCopyIds &a = copies[before], &b = copies[i];
      if (a.dst != b.dst && a.dst != b.src && a.src != b.dst) continue;
      ends.push_back(static_cast<int32_t>(i));
      begin = i;
      break;
    }
  }
  if (!copies.empty()) ends.push_back(static_cast<int32_t>(copies.size()));
  return ends;
}

}  // namespace quire::cuda
