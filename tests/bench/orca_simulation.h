#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "server/cli/bench_dataset.h"

// How many sequences a KV memory holds: contiguous reservation as in Orca against the paged block manager, on one
// trace. The comparison of arXiv 2309.06180, section 6 (policies, pool and maximum length are its OPT-13B's).
//
// Queueing model, the same for all:
//   * a saturated closed queue: a next request always waits; requests are admitted in the order of the trace, as many
//     as the policy has room for, and the first that does not fit stops admission (nobody is overtaken);
//   * time counts in steps; every running sequence advances by one token a step, its whole prompt with the first one,
//     so a request runs for output_len steps. The last token is never stored: prompt + output - 1 slots get filled;
//   * nothing but memory bounds the batch.
// Reservation keeps its range until the request ends. The paged pool is the real BlockManager behind the real
// Scheduler: it admits what fits now, and preempts (dropping blocks, recomputing later in one step, found blocks
// excepted) when sequences outgrow the pool; who is preempted does not count as running.
//
// Every step after the first tenth of the trace was admitted and until its last request is, is measured; each counts
// the same.
namespace quire {

// What is reserved at admission, before the buddy allocator rounds it up to a power of two.
enum class Reservation {
  kMax,         // the maximum length
  kPowerOfTwo,  // prompt + output rounded up to a power of two, at most the maximum length
  kOracle,      // prompt + output, known in advance
};

struct OrcaOptions {
  int32_t num_slots = 15'728;  // 12 GiB of 800 KiB a token
  int32_t max_len = 2'048;     // prompt + output tokens
  int32_t block_size = 16;     // of the paged pool, which has num_slots / block_size blocks
};

// Means over the measured steps. Shares are of num_slots and add up to 1.
struct OrcaResult {
  std::string policy;
  int64_t steps = 0;             // measured
  double running = 0;            // sequences
  double length = 0;             // stored tokens of a running sequence
  double tokens = 0;             // share: slots that hold a token
  double future = 0;             // share: kept, to be filled later
  double never = 0;              // share: kept, never to be filled
  double unused = 0;             // share: not kept by anyone
  double requests_per_step = 0;  // admitted for the first time
  // Paged only.
  int64_t preemptions = 0;             // in the whole run
  double recomputed = 0;               // tokens computed again / tokens that had to be computed, in the whole run
  double use_at_first_preemption = 1;  // share of the pool's blocks; 1 if there was none

  // 1 - tokens / kept slots.
  double waste() const { return 1 - tokens / (tokens + future + never); }
};

// REQUIRES: every request has prompt + output in [2, max_len] and fits the pool alone.
OrcaResult SimulateReservation(Reservation reservation, absl::Span<const cli::BenchRequest> trace,
                               const OrcaOptions& options);
OrcaResult SimulatePaged(absl::Span<const cli::BenchRequest> trace, const OrcaOptions& options);

}  // namespace quire
