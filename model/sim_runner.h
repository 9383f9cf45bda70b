#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/model_runner.h"

namespace quire {

// What a simulated model is made of.
struct SimRunnerOptions {
  ModelConfig config;         // vocab_size and the sizes that KV bytes per token follow from
  int32_t num_kv_blocks = 0;  // the null block included, >= 2
  int32_t block_size = 0;     // tokens, >= 1; (num_kv_blocks + num_host_blocks) * block_size <= 2^31 - 1
  int32_t num_host_blocks = 0;
  // Layer groups as in ModelRunner::group_windows; at least one.
  std::vector<int32_t> group_windows = {0};
  double time_scale = 1;  // >= 0: seconds waited per second of the time model; 0 does not wait
};

// A runner without arithmetic, for tests of everything around a model (--device sim).
//
// Every KV slot holds a 64-bit fingerprint of the tokens up to its position, made from the fingerprint of the position
// before as found through the block table, the token and the position; so it is in every layer group. A next token is a
// pure function of the fingerprints that its row sees within each group's window, and of (seed, sequence index, output
// position) unless it is greedy. So a wrong block table, a block that was published too early or a stale copy changes
// the ids, and nothing else does: batching, chunking, block size and block placement do not.
//
// Log-probabilities are those of a geometric distribution over the vocabulary in a cyclic order that begins at a hashed
// id: deterministic, strictly falling, summing to 1. kInvalidArgument for a batch that breaks forward_batch.h.
// kInvalidArgument from the factory for options out of range.
absl::StatusOr<std::unique_ptr<ModelRunner>> CreateSimRunner(const SimRunnerOptions& options);

}  // namespace quire
