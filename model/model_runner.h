#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/forward_batch.h"
#include "model/step_result.h"

namespace quire {

// Runs steps. Real (model/transformer_runner.h) or simulated (model/sim_runner.h).
// Thread rule: one thread, the engine's.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;

  // 2: a step may be submitted before the one before it was waited for; the device runs them in order and keeps what
  // the latest step sampled for ForwardBatch::tokens_from_samples. 1: not, as on the CPU, where there is nothing to
  // win.
  virtual int32_t max_steps_in_flight() const { return 1; }

  // Starts one step; at most max_steps_in_flight() are in flight. Everything in `batch` stays valid until the Wait that
  // ends this step returned. After a failure the step is not in flight. On the CPU the work is done in here.
  virtual absl::Status Submit(const ForwardBatch& batch) = 0;

  // Ends the earliest step in flight and fills *result. A failed Submit or Wait fails the requests of that batch and no
  // other.
  virtual absl::Status Wait(StepResult* result) = 0;

  // Not OK once the device has failed for good: no step will succeed any more.
  virtual absl::Status broken() const { return absl::OkStatus(); }

  virtual int32_t vocab_size() const = 0;
  // KV blocks, the null block included, and tokens in each.
  virtual int32_t num_kv_blocks() const = 0;
  virtual int32_t block_size() const = 0;
  // Blocks of the host tier, numbered from num_kv_blocks on in block_copies.
  virtual int32_t num_host_blocks() const { return 0; }
  // Layer groups, each with tables of its own in a ForwardBatch, by the keys that a query sees in them; 0: all. The
  // blocks of the pool serve any of them.
  virtual std::vector<int32_t> group_windows() const { return {0}; }
  // Bytes of packed weights that a decode step of one token reads; 0 for sim.
  virtual int64_t weight_bytes_per_step() const = 0;
  // On all layers, as long as nothing slides out of a window.
  virtual int64_t kv_bytes_per_token() const = 0;
  // "cpu avx512 2 threads"
  virtual std::string Describe() const = 0;
};

}  // namespace quire
