#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::cli {

// What a load run sends. Unset lengths take the data set's own (table in README.md).
struct DatasetOptions {
  std::string name;  // random, prefix-repetition, sharegpt-like, alpaca-like
  std::optional<int> input_len, output_len, shared_prefix_len;
  uint64_t seed = 0;
  int32_t vocab_size = 0;
  int32_t max_model_len = 0;
};

struct BenchRequest {
  std::vector<uint32_t> prompt;  // ids, uniform below the vocabulary size
  int32_t output_len = 0;        // tokens to generate
};

// `count` requests; the same options give the same requests on every machine. `stream` picks another set of the same
// kind whose prompts differ, shared prefixes apart (warm-up). Lengths:
//   random             every prompt is [shared prefix] + input_len ids
//   prefix-repetition  the same, with ten prefixes in turn
//   sharegpt-like      log-normal lengths with the means of the vLLM paper's ShareGPT (161 in, 338 out), cut as vLLM
//                      filters it: 4 <= in <= 1024, in + out <= 2048
//   alpaca-like        the same with Alpaca's means (19 in, 58 out)
// kInvalidArgument naming option, value and limit: unknown name, length < 1, prompt + output beyond max_model_len.
absl::StatusOr<std::vector<BenchRequest>> MakeDataset(const DatasetOptions& options, int count, uint64_t stream);

}  // namespace quire::cli
