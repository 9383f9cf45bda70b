#pragma once

#include <string>

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"
#include "scheduler/trace/trace_file.h"
#include "scheduler/trace/trace_recorder.h"

namespace quire {

// A trace in memory, up to a number of bytes. The first megabytes are there from the beginning, for tests that count
// allocations.
class TraceString : public TraceBytes {
 public:
  TraceString() { bytes_.reserve(4 << 20); }
  Answer Append(absl::string_view bytes, bool last) override {
    if (!last && bytes_.size() + bytes.size() > max_bytes) return Answer::kFull;
    bytes_.append(bytes.data(), bytes.size());
    return Answer::kTaken;
  }
  const std::string& bytes() const { return bytes_; }

  size_t max_bytes = SIZE_MAX;

 private:
  std::string bytes_;
};

// Whether runs whose test says nothing of it are recorded, and replayed at the end: not under sanitizers, where the
// tests that are about traces do so.
extern const bool kRecordByDefault;

// Options of a block manager that is going to be recorded: ids are ordered by their images under a fixed key. Not where
// the keys of blocks are to collide as they did: then ids must stay.
BlockManagerOptions Recordable(BlockManagerOptions options);

// Records all that happens to a scheduler and its block manager from the beginning on; at the end the trace is replayed
// and the test fails unless every plan comes out bit for bit. To be destroyed first.
class RecordedRun {
 public:
  // `blocks_options`: as given to the manager, made by Recordable.
  RecordedRun(const SchedulerOptions& options, const SequenceLimits& limits, const BlockManagerOptions& blocks_options,
              BlockManager* blocks, Scheduler* scheduler);
  ~RecordedRun();
  RecordedRun(const RecordedRun&) = delete;
  RecordedRun& operator=(const RecordedRun&) = delete;

  // Ends the record and gives its bytes; it is not verified then.
  std::string Finish();

 private:
  BlockManager* const blocks_;
  Scheduler* const scheduler_;
  const BlockManagerOptions options_;
  TraceString bytes_;
  TraceWriter writer_;
  TraceRecorder recorder_;
  bool finished_ = false;
};

}  // namespace quire
