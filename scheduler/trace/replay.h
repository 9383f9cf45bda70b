#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "scheduler/trace/trace_fields.h"
#include "scheduler/trace/trace_file.h"
#include "scheduler/trace/trace_record.h"
#include "scheduler/trace/trace_recorder.h"

namespace quire {

struct ReplayOptions {
  bool check_invariants = true;  // after each call: O(everything)
  TraceLimits limits = {};
  // For traces of tests whose block manager had another one.
  BlockHash (*chain_hash)(const BlockHash& parent, absl::Span<const int32_t> tokens) = &ChainHash;
};

// Where a replay came to something else than its trace says.
struct ReplayDifference {
  int64_t record = 0, offset = 0;  // counted from 1; byte in the trace
  int64_t step = 0;                // of the latest plan, this one included
  std::string call, field, recorded, replayed;

  std::string ToString() const;
};

struct ReplayReport {
  int64_t records = 0, steps = 0;
  std::optional<ReplayDifference> difference;  // the first; nothing was replayed after it
  absl::Status broken;                         // the first broken invariant; nothing was replayed after it
  absl::Status damage;  // of the trace: cut off, unreadable, or a call that was never legal; all before was verified
  bool ended = false;   // the trace has its end
  TraceEnd end = TraceEnd::kStopped;
  int64_t lost_records = 0;
  // Misses for which the bounded memory of evicted keys, which is laid out by hash, had another explanation.
  int64_t other_miss_reasons = 0;
  SchedulerStats stats;
  BlockStats blocks;

  // Everything that was recorded was reproduced, and the trace has its end.
  bool verified() const { return ended && damage.ok() && broken.ok() && !difference.has_value(); }
};

// A scheduler and a block manager made of a trace's header, to which the calls of its records are made.
class TraceReplay : private TraceSink {
 public:
  TraceReplay(const TraceHeader& header, const ReplayOptions& options);

  // Makes the call. kDataLoss if it is none that a scheduler in this state may get; then nothing happened.
  absl::Status Apply(const TraceRecord& record);

  // Whether the latest call came to what the record says; otherwise where not.
  std::optional<ReplayDifference> Compare(const TraceRecord& record, int64_t* other_miss_reasons) const;

  // The keys of the prompt's full blocks.
  std::vector<BlockHash> HashPrompt(const EngineRequest& request) const;

  // The events that the latest call gave.
  const StepOutputs& outputs() const { return outputs_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const BlockManager& blocks() const { return blocks_; }

 private:
  void Take(const TraceRecord& record) override { latest_ = &record; }
  absl::Status Add(const TraceRecord& record);
  absl::Status Finish(const TraceRecord& record);
  absl::Status FillConstrained(const TraceRecord& record, const SchedulePlan& plan);
  absl::Status FillResult(const TraceRecord& record, const SchedulePlan& plan);

  const TraceHeader header_;
  BlockManager blocks_;
  Scheduler scheduler_;
  TraceRecorder recorder_;
  const TraceRecord* latest_ = nullptr;  // what the recorder saw of the latest call; null: it had no effect
  std::deque<SchedulePlan> in_flight_;
  std::vector<SchedulePlan> spare_;
  StepResult result_;
  StepOutputs outputs_;
};

// Replays a trace and compares each plan and each decision, bit for bit. An error only if there is nothing to begin
// with (kDataLoss); all else is in the report.
absl::StatusOr<ReplayReport> VerifyTrace(absl::string_view bytes, const ReplayOptions& options = {});

}  // namespace quire
