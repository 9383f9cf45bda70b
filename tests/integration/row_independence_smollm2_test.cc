#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/factory.h"
#include "tests/integration/row_independence_matrix.h"
#include "tests/testing/ref_data.h"

namespace quire::testing {
namespace {

// 200 requests over the lengths that the options leave to their defaults: prompts of 1-700 tokens, outputs of 8-48.
MatrixOptions SmolLm2Matrix(const std::string& model_path) {
  return {.model_path = model_path,
          .device = DeviceKind::kCpu,
          .workload = {.num_requests = 200, .vocab_size = 49152},
          .max_model_len = 768,
          .large_pool_tokens = 120000,
          .small_pool_tokens = 2048};
}

// Thin, so that tests/run stays short: mostly short prompts, merged variants.
TEST(RowIndependenceSmolLm2Test, SameIdsInEveryVariant) {
  const auto model = SmolLm2Path();
  if (!model) GTEST_SKIP() << "no SmolLM2 file: set QUIRE_TEST_MODEL or run deploy/quickstart";
  MatrixOptions options = SmolLm2Matrix(*model);
  options.workload.prompt_skew = 6;
  options.merge_variants = true;
  options.num_isa_requests = 30;
  ExpectRowIndependence(options);
}

// Every variant by itself, on one vector instruction set; all 200 requests on the other; the scalar twin, which takes
// seconds a request, on the first 6.
class RowIndependenceSmolLm2FullTest : public ::testing::TestWithParam<CpuIsa> {};

TEST_P(RowIndependenceSmolLm2FullTest, SameIdsInEveryVariant) {
  if (std::getenv("QUIRE_FULL_MATRIX") == nullptr) {
    GTEST_SKIP() << "takes half an hour: on demand, by QUIRE_FULL_MATRIX=1 (tests/README.md)";
  }
  const auto model = SmolLm2Path();
  ASSERT_TRUE(model) << "no SmolLM2 file: set QUIRE_TEST_MODEL or run deploy/quickstart";
  const std::vector<CpuIsa> available = AvailableCpuIsas();
  if (std::find(available.begin(), available.end(), GetParam()) == available.end()) {
    GTEST_SKIP() << "this machine has no " << Name(GetParam());
  }
  MatrixOptions options = SmolLm2Matrix(*model);
  options.isa = GetParam();
  options.num_isa_requests = options.workload.num_requests;
  options.num_scalar_requests = 6;
  ExpectRowIndependence(options);
}

INSTANTIATE_TEST_SUITE_P(Isas, RowIndependenceSmolLm2FullTest, ::testing::Values(CpuIsa::kAvx2, CpuIsa::kAvx512),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace quire::testing
