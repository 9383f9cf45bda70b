#include "scheduler/engine_trace.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

TokenPermutation DrawTokenPermutation(int32_t vocab_size) {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  const int bits = std::bit_width(static_cast<uint32_t>(std::max(1, vocab_size) - 1));
  return TokenPermutation({word(), word()}, std::clamp(bits, TokenPermutation::kMinBits, TokenPermutation::kMaxBits));
}

absl::StatusOr<std::unique_ptr<EngineTrace>> EngineTrace::Start(std::shared_ptr<TraceFile> file,
                                                                const TraceHeader& header, BlockManager* blocks,
                                                                Scheduler* scheduler) {
  std::unique_ptr<EngineTrace> trace(new EngineTrace(std::move(file), header, blocks, scheduler));
  if (!trace->writer_.status().ok()) return absl::FailedPreconditionError(trace->writer_.status().message());
  return trace;
}

EngineTrace::EngineTrace(std::shared_ptr<TraceFile> file, const TraceHeader& header, BlockManager* blocks,
                         Scheduler* scheduler)
    : file_(std::move(file)),
      blocks_(blocks),
      scheduler_(scheduler),
      writer_(header, header.blocks.token_order, file_.get()),
      recorder_(blocks, header.blocks.token_order, &writer_) {
  blocks_->SetObserver(&recorder_);
  scheduler_->SetObserver(&recorder_);
}

EngineTrace::~EngineTrace() { Finish(); }

void EngineTrace::End() {
  if (std::exchange(ended_, true)) return;
  blocks_->SetObserver(nullptr);
  scheduler_->SetObserver(nullptr);
  writer_.Finish();
  file_->Close();
}

void EngineTrace::Finish() {
  End();
  file_->Wait();
}

std::string EngineTrace::problem() const {
  std::string problem = file_->problem();
  if (!problem.empty() || !writer_.losing()) return problem;
  switch (writer_.end()) {
    case TraceEnd::kFull:
      return absl::StrCat("the schedule trace ", file_->path(), " has reached its limit of ", file_->max_bytes(),
                          " bytes");
    case TraceEnd::kTooSlow:
      return absl::StrCat("the schedule trace ", file_->path(), " is not written as fast as steps are recorded");
    default:
      return absl::StrCat("the schedule trace ", file_->path(), " cannot go on: ", writer_.status().message());
  }
}

ScheduleTraceStatus EngineTrace::status() const {
  using State = ScheduleTraceStatus::State;
  ScheduleTraceStatus status;
  status.problem = problem();
  status.file = file_->path();
  status.records = writer_.num_records();
  status.bytes = file_->num_bytes();
  status.lost_records = writer_.num_lost();
  if (ended_) {
    status.state = written() ? State::kStopped : State::kStopping;
  } else {
    status.state = status.problem.empty() ? State::kRecording : State::kEnded;
  }
  return status;
}

}  // namespace quire
