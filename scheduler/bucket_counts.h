#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

// How often a value fell between which bounds: what a histogram is made of. Allocates nothing. Not thread-safe.
struct BucketCounts {
  static constexpr size_t kNumBounds = 15;
  using Bounds = std::array<double, kNumBounds>;  // ascending

  void Add(const Bounds& bounds, double value) {
    ++counts[std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin()];
    sum += value;
  }

  std::array<int64_t, kNumBounds + 1> counts = {};  // [i]: at most bounds[i] and more than the one before; [last]: more
  double sum = 0;                                   // of all values
};

}  // namespace quire
