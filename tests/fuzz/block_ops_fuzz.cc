#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/block_manager/block_ops.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::testing::BlockOpsCounts counts;
  const std::string error = quire::testing::RunBlockOps({data, size}, &counts);
  if (error.empty()) return 0;
  std::fprintf(stderr, "%s\n", error.c_str());
  std::abort();
}
