#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"
#include "scheduler/scheduler_observer.h"
#include "scheduler/step_outputs.h"

namespace quire {

// A schedule trace as values. What the bytes mean: scheduler/trace/README.md.

// What decides beside the calls. Of the block manager's options, chain_hash and token_order are not part of a trace.
struct TraceHeader {
  SchedulerOptions scheduler;
  SequenceLimits limits;
  BlockManagerOptions blocks;
};

enum class TraceCall : uint8_t {
  kAdd = 1,
  kAbort,
  kAbortSequence,
  kSetHeld,
  kDropExpired,
  kSchedule,
  kCommit,
  kFailStep,
  kAdvanceTime,
  kSetTenantQuota,
  kDropPrefix,
  kDropTenant,
  kDropAll,
  kEnd,  // no call: nothing follows
};

// A sequence of a trace: the number of its request, counted from 0 in order of Add, and its index in it.
struct TraceSequence {
  uint64_t request = 0;
  int32_t index = 0;
  friend bool operator==(const TraceSequence&, const TraceSequence&) = default;
};

struct TraceDecision {
  enum class Kind : uint8_t { kAdmitted, kFollows, kPreempted, kEnded };
  Kind kind = Kind::kAdmitted;
  TraceSequence sequence;
  // kAdmitted: tokens found in the cache. kFollows: leading tokens that it will find. kPreempted: computed ones.
  int32_t num_tokens = 0;
  // kAdmitted
  int32_t partial_tokens = 0;
  int32_t host_blocks = 0;
  MissReason miss = MissReason::kNone;
  int32_t missed_block = 0;
  // kFollows: whom. kPreempted: for whom, if has_other.
  bool has_other = false;
  TraceSequence other;
  PreemptReason preempt_reason = PreemptReason::kBlocks;  // kPreempted
  // kEnded
  FinishReason finish_reason = FinishReason::kNone;
  absl::StatusCode status_code = absl::StatusCode::kOk;
  friend bool operator==(const TraceDecision&, const TraceDecision&) = default;
};

// A ConstrainedSample.
struct TraceConstrained {
  int32_t sample = 0;        // index into `sampled`
  int32_t forced_count = 0;  // its share of `forced`, behind those of the ones before
  bool ends = false;
  absl::StatusCode status_code = absl::StatusCode::kOk;
};

// A SchedulePlan: who computes what, the copies, and a hash of everything else that it says.
struct TracePlan {
  struct Entry {
    TraceSequence sequence;
    int32_t start = 0, num_tokens = 0;
    bool sampled = false;
    int32_t num_scores = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  int64_t step = 0;  // 0: the plan is empty
  std::vector<Entry> sequences;
  std::vector<BlockCopy> copies;
  int64_t evictions = 0;  // blocks evicted since the plan before
  // Rows, riders, sampling parameters, banned ids, integrity work, and the blocks and pages that each sequence writes
  // in the step; of those that were admitted in it, all blocks.
  BlockHash digest;
  friend bool operator==(const TracePlan&, const TracePlan&) = default;
};

enum class TraceEnd : uint8_t {
  kStopped,    // whoever recorded ended it
  kFull,       // the size limit was reached
  kTooSlow,    // the writer did not keep up
  kUnwritten,  // a value that no trace can hold
};

// One call with what came of it. Flat, so that it can be reused without allocating: which fields mean something depends
// on `call`. Token ids are images under the trace's permutation.
struct TraceRecord {
  TraceCall call = TraceCall::kEnd;
  absl::Time now = absl::UnixEpoch();  // all but kAdd, kSetHeld, kSetTenantQuota, kDrop*, kEnd
  EngineRequest request;               // kAdd; without block hashes, and stop_strings only in number
  uint64_t handle = 0;                 // kAbort, kAbortSequence, kSetHeld
  int32_t sequence_index = 0;          // kAbortSequence
  bool held = false;                   // kSetHeld
  TracePlan plan;                      // kSchedule
  int64_t step = 0;                    // kCommit, kFailStep: of the plan
  double step_seconds = 0;             // kCommit
  double host_copy_seconds = 0;        // kCommit
  std::vector<int32_t> sampled;        // kCommit: by row that samples; -1: bad logits
  std::vector<int32_t> bad_scores;     // kCommit: scores with bad logits
  int32_t num_scores = 0;              // kCommit
  // kCommit: of each row of a beam search, in order, how many log-probabilities it gave, and these.
  std::vector<int32_t> beam_logprob_counts;
  std::vector<TokenLogprob> beam_logprobs;
  std::vector<TraceConstrained> constrained;             // kCommit
  std::vector<int32_t> forced;                           // kCommit
  absl::StatusCode status_code = absl::StatusCode::kOk;  // kFailStep
  int32_t tenant = 0;                                    // kSetTenantQuota, kDropTenant
  int32_t max_blocks = 0;                                // kSetTenantQuota
  BlockHash root;                                        // kDropPrefix
  std::vector<int32_t> tokens;                           // kDropPrefix
  int32_t dropped_blocks = 0;                            // kDrop*
  TraceEnd end = TraceEnd::kStopped;                     // kEnd
  int64_t lost_records = 0;                              // kEnd: that came afterwards and were not kept
  std::vector<TraceDecision> decisions;                  // of the call, in order
};

}  // namespace quire
