#include "tests/block_manager/block_ops.h"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

// At least a million operations; QUIRE_BLOCK_OPS asks for another number.
int64_t NumOperations() {
  int64_t operations = kSanitized ? 60'000 : 1'000'000;
  const char* const asked = std::getenv("QUIRE_BLOCK_OPS");
  if (asked != nullptr && !absl::SimpleAtoi(asked, &operations)) ADD_FAILURE() << "QUIRE_BLOCK_OPS is " << asked;
  return operations;
}

TEST(BlockOpsTest, B011_B013_B017_B019_TheManagerAgreesWithTheNaiveOneOverRandomOperations) {
  BlockOpsCounts counts;
  const int64_t wanted = NumOperations();
  for (uint32_t seed = 1; counts.operations < wanted; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(8'000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() >> 16);
    ASSERT_EQ(RunBlockOps(bytes, &counts), "") << "seed " << seed;
  }
  EXPECT_GT(counts.hits, wanted / 40);
  EXPECT_GT(counts.partial_hits, wanted / 80);
  EXPECT_GT(counts.evictions, wanted / 60);
  EXPECT_GT(counts.copies, wanted / 60);
  EXPECT_GT(counts.refusals, wanted / 100);
  EXPECT_GT(counts.failed_steps, wanted / 60);
  EXPECT_GT(counts.copied_out, wanted / 200);
  EXPECT_GT(counts.copied_in, wanted / 1000);
  EXPECT_GT(counts.pages_out, wanted / 1000);
  EXPECT_GT(counts.pages_in, wanted / 5000);
  std::printf(
      "%lld operations: %lld hits (%lld inside a block), %lld evictions, %lld copies, %lld refusals; "
      "%lld blocks to the host and %lld back, %lld pages there and %lld back\n",
      static_cast<long long>(counts.operations), static_cast<long long>(counts.hits),
      static_cast<long long>(counts.partial_hits), static_cast<long long>(counts.evictions),
      static_cast<long long>(counts.copies), static_cast<long long>(counts.refusals),
      static_cast<long long>(counts.copied_out), static_cast<long long>(counts.copied_in),
      static_cast<long long>(counts.pages_out), static_cast<long long>(counts.pages_in));
}

TEST(BlockOpsTest, AnyBytesAreOperations) {
  BlockOpsCounts counts;
  EXPECT_EQ(RunBlockOps({}, &counts), "");
  for (int value = 0; value < 256; ++value) {
    const std::vector<uint8_t> bytes(300, static_cast<uint8_t>(value));
    EXPECT_EQ(RunBlockOps(bytes, &counts), "") << value;
  }
}

}  // namespace
}  // namespace quire::testing
