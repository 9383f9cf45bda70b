#include <cstdio>
#include <string>

#include "gtest/gtest.h"
#include "tests/simt/device.h"

// Exits 77, saying why, where the device of this build is missing.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string why = quire::simt::WhyNoDevice();
  if (!why.empty()) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
