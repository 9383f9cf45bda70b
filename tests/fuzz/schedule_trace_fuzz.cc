#include <cstddef>
#include <cstdint>

#include "tests/testing/trace_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::testing::UseAsTrace(data, size);
  return 0;
}
