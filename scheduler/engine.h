#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "block_manager/block_manager.h"
#include "model/config.h"
#include "scheduler/bucket_counts.h"
#include "scheduler/engine_options.h"
#include "scheduler/request.h"
#include "scheduler/step_outputs.h"

namespace quire {

// Engine -> detokenizer threads: a ring of 4 slots, one writer (the engine), one reader a shard.
class StepOutputQueue {
 public:
  virtual ~StepOutputQueue() = default;
  // The next slot in order, or null: the engine has ended and everything was read. Blocks. The slot is the reader's
  // until Release. One reader thread.
  virtual const StepOutputs* Pop() = 0;
  virtual void Release() = 0;
};

struct EngineStats {
  int64_t steps = 0;  // plans executed
  int32_t requests_running = 0, requests_waiting = 0;
  int32_t requests_held = 0;  // neither running nor waiting: their readers do not keep up
  int64_t waiting_prompt_tokens = 0;
  int32_t kv_blocks_total = 0, kv_blocks_free = 0, kv_blocks_cached = 0,
          kv_blocks_active = 0;  // null block not counted
  int64_t prefix_query_tokens = 0, prefix_hit_tokens = 0, evictions = 0;
  int64_t preemptions = 0, swaps = 0;  // swaps: of these, those whose blocks are kept on the host
  int32_t host_blocks_total = 0, host_blocks_used = 0;
  int64_t host_bytes_out = 0, host_bytes_in = 0;  // copied to the host tier and back
  int64_t requests_finished = 0, requests_aborted = 0, requests_failed = 0;
  int64_t prompt_tokens = 0, generation_tokens = 0;
  // Speculation: steps of sequences that tried drafts, drafts tried, and those of them that were right.
  int64_t drafting_steps = 0, drafted_tokens = 0, accepted_tokens = 0;
  int64_t surplus_tokens = 0;  // computed in vain: the sequence had ended in the step before, which overlapped
  // Seconds of all steps so far by part, and of the latest.
  struct StepSeconds {
    double linear = 0, attention = 0, sampling = 0, scheduling = 0, rest = 0, total = 0;
  };
  StepSeconds total_step_seconds, last_step_seconds;
  // Steps so far by their seconds, as above, and by the tokens that they computed.
  struct StepCounts {
    static constexpr BucketCounts::Bounds kSeconds = {1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01,
                                                      0.02, 0.05, 0.1,  0.2,  0.5,  1,    5};
    static constexpr BucketCounts::Bounds kTokens = {1,   2,   4,    8,    16,   32,   64,   128,
                                                     256, 512, 1024, 2048, 4096, 8192, 16384};
    BucketCounts linear, attention, sampling, scheduling, rest, total;
    BucketCounts tokens;
  };
  StepCounts step_counts;
  int64_t trace_bytes = 0, trace_records_lost = 0;  // of the schedule trace: written; not written, and it ends before
  int64_t output_queue_waits = 0;                   // steps that waited for a detokenizer
  bool healthy = true;                              // false while a step takes longer than step_timeout
};

// Of the schedule traces (scheduler/trace/README.md), of which there is one at a time: the latest.
struct ScheduleTraceStatus {
  enum class State : uint8_t {
    kNone,     // there was none
    kPending,  // it begins as soon as no request lives
    kRecording,
    kEnded,     // before it was stopped; `problem` says why. Stopping it completes the file
    kStopping,  // the file is still being written
    kStopped,   // the file has all that it will ever have
  };
  State state = State::kNone;
  std::string file;     // path
  std::string problem;  // why it ended before it was stopped, or never began
  int64_t records = 0, bytes = 0;
  int64_t lost_records = 0;  // that were not written: the trace ends before the first of them
};
class TraceFile;  // engine_trace_file.h

// Fixed once the engine stands.
struct EngineInfo {
  ModelConfig config;
  std::string device;         // "cpu avx512 2 threads"
  int32_t max_model_len = 0;  // prompt + output tokens of a sequence
  int32_t block_size = 0;
  int32_t num_kv_blocks = 0;  // usable
  int32_t num_host_blocks = 0;
  int64_t kv_bytes_per_token = 0;
  int64_t weight_bytes_per_step = 0;
  bool prefix_cache_enabled = true;
  int32_t num_kv_events = 0;  // that KvEventLog keeps
  KeyContext key_context;     // of the model and process; add salt and tenant
};

// Payload of a kResourceExhausted from Submit: milliseconds after which to try again, as decimal text.
inline constexpr char kRetryMsPayload[] = "quire/retry_ms";

// The engine: model, KV cache, block manager and scheduler, stepped by one thread of its own that alone touches them.
//
// Requests and aborts come in by messages; results leave as values through StepOutputQueue. Every accepted request ends
// with exactly one SequenceOutput whose request_finished is set. All public functions are safe from any thread.
class Engine {
 public:
  virtual ~Engine() = default;  // stops at once if still running

  // Starts the engine thread.
  virtual void Start() = 0;

  // Hands over a request. kUnavailable when draining or stopped; kResourceExhausted naming the limit when too many
  // requests or prompt tokens wait or the wait would be too long, with when to come back (kRetryMsPayload);
  // kInvalidArgument when it can never fit (lengths and limits in the message).
  virtual absl::Status Submit(EngineRequest request) = 0;

  // Ends a request; unknown or finished handles are ignored. Never blocks, never fails. The final event says kAborted.
  // At most one more plan contains the request, or two where steps overlap (ModelRunner::max_steps_in_flight).
  virtual void Abort(uint64_t handle) = 0;
  // Ends one sequence of a request the same way (a stop string was found); its final event says kAborted.
  virtual void AbortSequence(uint64_t handle, int32_t sequence_index) = 0;

  // A held request is in no further plan but the one under way and has no KV blocks, until it is let go on: its reader
  // does not keep up. Unknown or finished handles are ignored; never blocks, never fails.
  virtual void SetHeld(uint64_t handle, bool held) = 0;

  // Refuses new requests from now on; queued and running ones go on.
  virtual void BeginDrain() = 0;
  // Blocks until nothing is queued or running, or until `deadline`; true if it is empty.
  virtual bool WaitIdle(absl::Time deadline) = 0;
  // Aborts what is left, ends the thread, closes the output queues. Idempotent.
  virtual void Stop() = 0;

  // The shard whose queue carries a request's outputs: handle % num_output_shards.
  virtual StepOutputQueue& outputs(int32_t shard) = 0;

  virtual const EngineInfo& info() const = 0;
  virtual EngineStats GetStats() const = 0;
  // False while the step in flight has lasted longer than step_timeout.
  virtual bool IsHealthy() const = 0;

  // Runs `task` on the engine thread, which alone may touch the block manager, once, between two steps; the time of
  // retention is up to date then. It makes requests wait, so it must be short, and it must never block. kUnavailable,
  // and it does not run, unless the engine thread does; what was taken runs, also when the engine ends.
  using Task = std::function<void(BlockManager& blocks)>;
  virtual absl::Status Post(Task task) = 0;
  // The same for a look at the block manager that waits for something to happen: runs at once, then after each step and
  // after tasks until it returns true or the engine ends. Unlike tasks it does not wait for steps in flight.
  using Watcher = std::function<bool(const BlockManager& blocks)>;
  virtual absl::Status Watch(Watcher watcher) = 0;

  // --- The schedule trace while the engine runs.

  // A new file in EngineOptions::schedule_trace_dir (kFailedPrecondition without one), which is removed with the answer
  // unless a trace begins with it. `max_bytes`: [4096, schedule_trace_max_bytes], 0 for the latter. kInvalidArgument,
  // kAlreadyExists, kUnavailable. Waits for the file system.
  virtual absl::StatusOr<std::shared_ptr<TraceFile>> CreateTraceFile(const std::string& /*name*/,
                                                                     int64_t /*max_bytes*/) {
    return absl::UnimplementedError("no schedule traces here");
  }
  // The other functions are for the engine thread (in a Task) only.
  //
  // Begins a trace in `file` as soon as no request lives, and if that does not come about within `max_wait`, does not.
  // To begin, the scheduler and the block manager start anew, since a trace has no snapshots: nothing is cached then
  // (subscribers are told kCleared), and nothing is known of step times, copies and tenants. kFailedPrecondition while
  // another one is pending, recording or written.
  virtual absl::Status StartScheduleTrace(std::shared_ptr<TraceFile> /*file*/, absl::Duration /*max_wait*/) {
    return absl::UnimplementedError("no schedule traces here");
  }
  // Ends the trace, or the wait for one. kFailedPrecondition if there is none. Does not wait for the file.
  virtual absl::Status StopScheduleTrace() { return absl::UnimplementedError("no schedule traces here"); }
  virtual ScheduleTraceStatus GetScheduleTrace() { return {}; }

  // kOk, or the first broken block-manager invariant. Waits for the current step. For tests and debug builds.
  virtual absl::Status CheckInvariants() = 0;
};

// Loads the model and makes everything. Errors carry their kind: kNotFound and kInvalidArgument for the model's files,
// kFailedPrecondition for options that cannot work (naming option, value and limit), kUnavailable / kUnimplemented for
// the device, kResourceExhausted for memory.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options);

}  // namespace quire
