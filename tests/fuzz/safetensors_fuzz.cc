#include "tests/fuzz/parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::testing::ParseAsSafetensors(data, size);
  return 0;
}
