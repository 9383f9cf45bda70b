#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/integration/row_independence_matrix.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

struct TinyCase {
  std::string name;
  DeviceKind device;
  std::optional<DType> kv_dtype = {};
};

std::vector<TinyCase> TinyCases() {
  if (kSanitized) return {{"cpu", DeviceKind::kCpu}};
  return {{"reference", DeviceKind::kReference}, {"cpu", DeviceKind::kCpu}, {"cpu_int8", DeviceKind::kCpu, DType::kI8}};
}

class RowIndependenceTinyTest : public ::testing::TestWithParam<TinyCase> {};

TEST_P(RowIndependenceTinyTest, SameIdsInEveryVariant) {
  const auto model = RefPath("tiny/llama_gqa");
  if (!model) GTEST_SKIP() << "no oracle data: tiny/llama_gqa";
  MatrixOptions options;
  options.model_path = *model;
  options.device = GetParam().device;
  options.kv_dtype = GetParam().kv_dtype;
  options.merge_variants = options.kv_dtype.has_value();
  // The model has 512 positions and 320 ids.
  options.workload = {
      .num_requests = QUIRE_NUM_REQUESTS, .vocab_size = 320, .max_prompt = 400, .prompt_skew = 2, .max_output = 32};
  options.max_model_len = 480;
  options.large_pool_tokens = 160000;
  options.small_pool_tokens = options.merge_variants ? 512 : 1024;
  options.num_isa_requests = QUIRE_NUM_REQUESTS / 4;
  options.num_scalar_requests = QUIRE_NUM_REQUESTS / 20;
  ExpectRowIndependence(options);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowIndependenceTinyTest, ::testing::ValuesIn(TinyCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace quire::testing
