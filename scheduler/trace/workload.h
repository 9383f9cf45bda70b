#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "block_manager/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/step_time_model.h"
#include "scheduler/trace/replay.h"
#include "scheduler/trace/trace_record.h"

namespace quire {

// What a trace says about the work and the machine, whatever scheduled it.
struct TraceWorkload {
  struct Request {
    EngineRequest request;  // with block hashes; its handle is its number, from 1
    absl::Time arrival;     // the time of the first call that knew of it
    // By sequence: what it gave until it ended, was aborted or the trace ended. Beams count as sequences of one length.
    std::vector<std::vector<int32_t>> outputs;
  };
  TraceHeader header;
  std::vector<Request> requests;  // in order of arrival
  StepTimeModel step_time;        // learnt from all steps
  bool timed = false;             // the trace has enough step times to learn from
  double host_copy_seconds = 0;   // of a block, on average
  bool complete = false;          // the trace has its end
};

// Of these copies, those from or to the host.
int64_t NumHostCopies(absl::Span<const BlockCopy> copies, const BlockManager& blocks);

// kDataLoss if the trace cannot be read, or its replay comes to something else than it says. A trace that is cut off
// counts up to there.
absl::StatusOr<TraceWorkload> ReadWorkload(absl::string_view bytes, const ReplayOptions& options = {});

}  // namespace quire
