#pragma once

#include <cstdint>

// The emulated device behind kernels/cuda/runtime.h, for tests of what happens when it cannot go on.
namespace quire::simt {

struct EmulatedDevice {
  int64_t limit_bytes = int64_t{1} << 30;
  int64_t used_bytes = 0;
  bool fails = false;  // all work from now on
};
EmulatedDevice& emulated_device();

}  // namespace quire::simt
