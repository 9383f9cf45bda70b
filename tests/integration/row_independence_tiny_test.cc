#include "gtest/gtest.h"
#include "tests/integration/row_independence_matrix.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

std::vector<DeviceKind> Devices() {
  if (kSanitized) return {DeviceKind::kCpu};
  return {DeviceKind::kReference, DeviceKind::kCpu};
}

class RowIndependenceTinyTest : public ::testing::TestWithParam<DeviceKind> {};

TEST_P(RowIndependenceTinyTest, SameIdsInEveryVariant) {
  const auto model = RefPath("tiny/llama_gqa");
  if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
  MatrixOptions options;
  options.model_path = *model;
  options.device = GetParam();
  // The model has 512 positions and 320 ids.
  options.workload = {
      .num_requests = QUIRE_NUM_REQUESTS, .vocab_size = 320, .max_prompt = 400, .prompt_skew = 2, .max_output = 32};
  options.max_model_len = 480;
  options.large_pool_tokens = 160000;
  options.small_pool_tokens = 1024;
  options.num_isa_requests = QUIRE_NUM_REQUESTS / 4;
  options.num_scalar_requests = QUIRE_NUM_REQUESTS / 20;
  ExpectRowIndependence(options);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowIndependenceTinyTest, ::testing::ValuesIn(Devices()),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace quire::testing
