#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "block_manager/block_manager.h"
#include "block_manager/token_permutation.h"
#include "scheduler/engine.h"
#include "scheduler/engine_trace_file.h"
#include "scheduler/scheduler.h"
#include "scheduler/trace/trace_file.h"
#include "scheduler/trace/trace_recorder.h"

namespace quire {

// A permutation of the ids of a vocabulary, with a new random key.
TokenPermutation DrawTokenPermutation(int32_t vocab_size);

// A schedule trace of an engine (scheduler/trace/README.md) on its way to a file. The engine never waits for the file:
// what does not fit ends the trace, and is counted.
//
// Thread rule: the engine thread, or before it starts.
class EngineTrace {
 public:
  // Observes both from now on; they have done nothing yet. They outlive it, or End is called before.
  // kFailedPrecondition if no trace can hold these options.
  static absl::StatusOr<std::unique_ptr<EngineTrace>> Start(std::shared_ptr<TraceFile> file, const TraceHeader& header,
                                                            BlockManager* blocks, Scheduler* scheduler);
  ~EngineTrace();  // ends it, and waits for the file
  EngineTrace(const EngineTrace&) = delete;
  EngineTrace& operator=(const EngineTrace&) = delete;

  // Nothing more is recorded; the file gets its end in a while, or here where Finish waits for it. Idempotent.
  void End();
  void Finish();

  bool ended() const { return ended_; }
  // Whether the file has all that it will ever have.
  bool written() const { return file_->written(); }
  // Why nothing more is recorded although End was not called; empty: it is.
  std::string problem() const;
  int64_t num_bytes() const { return file_->num_bytes(); }
  int64_t num_lost() const { return writer_.num_lost(); }
  ScheduleTraceStatus status() const;

 private:
  EngineTrace(std::shared_ptr<TraceFile> file, const TraceHeader& header, BlockManager* blocks, Scheduler* scheduler);

  const std::shared_ptr<TraceFile> file_;
  BlockManager* const blocks_;
  Scheduler* const scheduler_;
  TraceWriter writer_;
  TraceRecorder recorder_;
  bool ended_ = false;
};

}  // namespace quire
