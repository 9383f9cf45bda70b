#pragma once

#include <cstdint>

namespace quire {

// What copying a KV block to or from the host costs, learnt from the steps that did it. A value: no clock.
class HostCopyCost {
 public:
  // A step copied so many blocks, which made it `seconds` longer.
  void Learn(int64_t num_blocks, double seconds) {
    if (num_blocks == 0) {
      seconds_ *= kTrust;
    } else if (seconds >= 0 && seconds < kLongest) {
      blocks_ = kMemory * blocks_ + static_cast<double>(num_blocks);
      seconds_ = kMemory * seconds_ + seconds;
    }
  }

  bool known() const { return blocks_ > 0; }
  // Of one block; 0 as long as nothing is known. It falls while nothing is copied, so that what was once too dear is
  // tried again.
  double seconds_per_block() const { return known() ? seconds_ / blocks_ : 0; }

 private:
  static constexpr double kMemory = 0.9;
  static constexpr double kTrust = 0.999;  // half after about 700 steps
  static constexpr double kLongest = 3600;

  double blocks_ = 0, seconds_ = 0;  // faded sums
};

}  // namespace quire
