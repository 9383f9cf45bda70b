#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/scheduler_options.h"
#include "scheduler/trace/workload.h"

namespace quire {

struct ComparisonOptions {
  PolicyKind policy = PolicyKind::kPriority;
  std::optional<int32_t> num_blocks = {};  // usable ones (with layer groups: pages), instead of the trace's; >= 1
};

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;  // 0 without values
};

// What became of a workload under a policy, in simulated seconds.
struct PolicyOutcome {
  int64_t requests = 0, completed = 0;
  int64_t refused = 0;  // can never fit the pool
  int64_t failed = 0;   // deadline passed or could not be met, or nothing could advance
  // Completed within deadline, TTFT target and (mean over its tokens) TPOT target, those that it had.
  int64_t good = 0;
  double seconds = 0;  // from the first arrival to the last event
  Percentiles ttft, itl, e2e;
  int64_t steps = 0, prompt_tokens = 0, output_tokens = 0;
  int64_t preemptions = 0;
  int64_t recomputed_tokens = 0;  // computed though they had been before
  double hit_rate = 0;            // prompt tokens found in the cache, of those looked up
  struct Tenant {
    int64_t requests = 0, completed = 0;
    Percentiles ttft;
    int64_t contended_tokens = 0;  // computed in steps while other tenants had requests too
  };
  std::map<std::string, Tenant> tenants;
  // Jain's index of the tenants' contended tokens over weight: 1: all alike, 1/n: one had all. 1 for a single tenant.
  double fairness = 1;

  double goodput() const { return seconds > 0 ? static_cast<double>(good) / seconds : 0; }
};

// Serves the workload with another policy: the same arrivals, and each sequence gives what it gave. A step takes what
// the trace's step-time model says (without step times: 4 ms, 20 us a prefill token, 100 us a decode row). Holds and
// cache administration are left out; a sequence that was aborted is aborted at the same length.
PolicyOutcome SimulatePolicy(const TraceWorkload& workload, const ComparisonOptions& options);

}  // namespace quire
