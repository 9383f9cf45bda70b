#include "gtest/gtest.h"
#include "tests/integration/row_independence_matrix.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

TEST(RowIndependenceSmolLm2Test, SameIdsInEveryVariant) {
  const auto model = SmolLm2Path();
  if (!model) GTEST_SKIP() << "no SmolLM2 file: set QUIRE_TEST_MODEL or run deploy/quickstart";
  MatrixOptions options;
  options.model_path = *model;
  options.device = DeviceKind::kCpu;
  options.workload = {.num_requests = 200, .vocab_size = 49152, .max_prompt = 700, .prompt_skew = 4};
  options.max_model_len = 768;
  options.large_pool_tokens = 96000;
  options.small_pool_tokens = 2048;
  options.merge_variants = true;
  options.num_isa_requests = 30;
  options.scalar_isa = false;  // it would take minutes; the tiny models run it
  ExpectRowIndependence(options);
}

}  // namespace
}  // namespace quire::testing
