#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/dtype.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/model_runner.h"

namespace quire {

struct TransformerRunnerOptions {
  // A Hugging Face directory or a .gguf file. With random_weights only its configuration is read.
  std::string model_path;
  std::unique_ptr<Backend> backend;       // not null
  int32_t block_size = 32;                // tokens of a KV block: 1, 8, 16, 32 or 64
  int32_t num_kv_blocks = 0;              // the null block included, >= 2; KvBytesPerBlock helps to size it
  int32_t max_num_batched_tokens = 2048;  // tokens of a step, [1, 2^20]
  int32_t max_num_seqs = 64;              // sequences of a step, [1, 65536]
  std::optional<DType> kv_dtype;          // Backend::default_kv_dtype if not set
  bool group_layers = false;              // tables by GroupLayers; false: one table for all layers
  int32_t num_host_blocks = 0;            // of the host tier
  bool check_host_copies = false;         // checksum what goes to the host, verify what comes back; debug builds do
  bool shadow_kv = false;       // prove after each step that it wrote to its own slots only (kv_integrity.h): for tests
  bool random_weights = false;  // weights from `seed` and the configuration only: for measuring
  uint64_t seed = 0;
};

// Loads the model, allocates the KV blocks and all working memory, and runs two small steps so that the first request
// finds everything in place. A step of sizes seen before allocates nothing.
//
// Errors: those of LoadModelConfig, OpenWeightSource and the backend; kInvalidArgument naming the option. Steps that
// break forward_batch.h or the limits answer kInvalidArgument from Submit, and nothing is changed.
absl::StatusOr<std::unique_ptr<ModelRunner>> CreateTransformerRunner(TransformerRunnerOptions options);

}  // namespace quire
