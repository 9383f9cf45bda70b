#pragma once

#include <string>

#include "scheduler/engine_options.h"
#include "tests/integration/row_independence.h"

namespace quire::testing {

// A real model, and how much of the matrix it goes through.
struct MatrixOptions {
  std::string model_path;
  DeviceKind device = DeviceKind::kReference;
  WorkloadOptions workload;
  int32_t max_model_len = 0;      // holds every request
  int32_t large_pool_tokens = 0;  // holds every request's blocks at once: nothing is evicted
  int32_t small_pool_tokens = 0;  // so few that at least 20 preemptions occur
  // First ones of the workload that each instruction set runs; the scalar twin a fifth of them, or none.
  int32_t num_isa_requests = 0;
  bool scalar_isa = true;
  bool merge_variants = false;  // fewer runs: block sizes go with other variants
};

// Runs the workload alone (one request at a time, no cache, one thread), then 64 at once; with 64 tokens a step; with
// the small pool; with the prefix cache, one at a time and 64 at once; with block sizes 1 and 32; with two threads; on
// each instruction set of the machine, naming those that it lacks. Fails the current test unless all give the same ids,
// and unless `cached_tokens` equals what follows from the prompts where that is known. Prints each variant's time.
void ExpectRowIndependence(const MatrixOptions& options);

}  // namespace quire::testing
