#pragma once

#include <cstdint>

// The emulated device behind kernels/cuda/runtime.h, for tests of what happens when it cannot go on. It fails too once
// the file is there that the environment variable QUIRE_SIMT_FAILURE_FILE names: for tests of a process.
namespace quire::simt {

struct EmulatedDevice {
  int64_t limit_bytes = int64_t{1} << 30;
  int64_t used_bytes = 0;
  bool fails = false;  // all work from now on
};
EmulatedDevice& emulated_device();

}  // namespace quire::simt
