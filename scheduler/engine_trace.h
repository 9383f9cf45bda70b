#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "block_manager/block_manager.h"
#include "block_manager/token_permutation.h"
#include "scheduler/scheduler.h"
#include "scheduler/trace/trace_file.h"
#include "scheduler/trace/trace_recorder.h"

namespace quire {

class TraceFile;

// A permutation of the ids of a vocabulary, with a new random key.
TokenPermutation DrawTokenPermutation(int32_t vocab_size);

// The schedule trace of an engine in a file (scheduler/trace/README.md): the engine thread writes records into a buffer
// of 8 MiB, a thread of its own drains it. The engine never waits for the file: what does not fit ends the trace, and
// is counted.
//
// Thread rule: the engine thread, or before it starts.
class EngineTrace {
 public:
  // Creates the file, readable for its owner only, and observes both from now on; they have done nothing yet. They
  // outlive it, or Finish is called before. `max_bytes`: of the file.
  // kUnavailable naming path and reason; kFailedPrecondition if no trace can hold these options.
  static absl::StatusOr<std::unique_ptr<EngineTrace>> Start(const std::string& path, int64_t max_bytes,
                                                            const TraceHeader& header, BlockManager* blocks,
                                                            Scheduler* scheduler);
  ~EngineTrace();  // finishes
  EngineTrace(const EngineTrace&) = delete;
  EngineTrace& operator=(const EngineTrace&) = delete;

  // Writes the end and waits until everything is in the file. Idempotent.
  void Finish();

  bool finished() const { return finished_; }
  int64_t num_records() const { return writer_.num_records(); }
  int64_t num_bytes() const { return writer_.num_bytes(); }
  int64_t num_lost() const { return writer_.num_lost(); }

 private:
  EngineTrace(std::unique_ptr<TraceFile> file, const TraceHeader& header, BlockManager* blocks, Scheduler* scheduler);

  const std::unique_ptr<TraceFile> file_;
  BlockManager* const blocks_;
  Scheduler* const scheduler_;
  TraceWriter writer_;
  TraceRecorder recorder_;
  bool finished_ = false;
};

}  // namespace quire
