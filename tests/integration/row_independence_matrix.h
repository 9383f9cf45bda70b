#pragma once

#include <optional>
#include <string>

#include "scheduler/engine_options.h"
#include "tests/integration/row_independence.h"

namespace quire::testing {

// A real model, and how much of the matrix it goes through.
struct MatrixOptions {
  std::string model_path;
  DeviceKind device = DeviceKind::kReference;
  CpuIsa isa = CpuIsa::kAuto;  // of all variants but "isa ..."
  std::optional<DType> kv_dtype = {};
  WorkloadOptions workload;
  int32_t max_model_len = 0;      // holds every request
  int32_t large_pool_tokens = 0;  // holds every request's blocks at once: nothing is evicted
  int32_t small_pool_tokens = 0;  // so few that at least 20 preemptions occur
  bool merge_variants = false;    // fewer runs: each condition once, several in a run
  // First ones of the workload that each further instruction set and its scalar twin run.
  int32_t num_isa_requests = 0, num_scalar_requests = 0;
};

// Runs the workload alone (one request at a time, no cache), then with one thing changed at a time: 64 at once; 64
// tokens a step; the small pool, also with a host tier by swap, recomputation and cost; the prefix cache, one at a time
// and 64 at once and in the small pool; block sizes 1 and 32; two threads for one; the first requests on each
// instruction set of the machine, naming those that it lacks. Fails the current test unless all give the same ids, and
// unless `cached_tokens` equals what follows from the prompts where that is known. Prints each variant's counts and
// time.
void ExpectRowIndependence(const MatrixOptions& options);

}  // namespace quire::testing
