#include "server/grpc/generate_reactors.h"

#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/convert.h"
#include "server/grpc/status_details.h"

namespace quire {
namespace {

grpc::Status Cancelled() { return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"); }

}  // namespace

// --- StreamReactor

void StreamReactor::Write(OutputDelta delta) {
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    if (!is_open()) return;
    pending_.Merge(std::move(delta));
    action = NextAction();
    UpdateHold();
  }
  Do(action);
}

void StreamReactor::UpdateHold() {
  const bool hold = held_ ? !pending_.empty() : pending_.bytes() > kHoldAboveBytes;
  if (hold == held_) return;
  held_ = hold;
  frontend_.SetHeld(handle_, hold);
}

void StreamReactor::Fail(const absl::Status& status) {
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    end_status_ = ToGrpcStatus(status);
    action = NextAction();
  }
  Do(action);
}

void StreamReactor::OnWriteDone(bool ok) {
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    sending_since_.reset();
    if (!ok) gone_ = true;
    action = NextAction();
    UpdateHold();
  }
  Do(action);
}

void StreamReactor::OnCancel() {
  Leave();
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    action = NextAction();
  }
  Do(action);
}

StreamReactor::Action StreamReactor::NextAction() {
  if (sending_since_ || finished_) return Action::kNone;
  if (!gone_ && !pending_.empty()) {
    const OutputDelta delta = pending_.Take(kMaxMessageBytes);
    message_.Clear();
    ToProto(request_id_, delta, &message_);
    NoteSending(/*is_end=*/delta.is_last());
    return delta.is_last() ? Action::kWriteAndFinish : Action::kWrite;
  }
  if (gone_) end_status_ = Cancelled();
  if (!end_status_) return Action::kNone;
  NoteSending(/*is_end=*/true);
  return Action::kFinish;
}

void StreamReactor::Do(Action action) {
  switch (action) {
    case Action::kNone:
      return;
    case Action::kWrite:
      return StartWrite(&message_);
    case Action::kWriteAndFinish:
      return StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
    case Action::kFinish: {
      grpc::Status status;
      {
        absl::MutexLock lock(&mutex_);
        status = *end_status_;
      }
      return Finish(status);
    }
  }
}

// --- UnaryReactor

UnaryReactor::UnaryReactor(grpc::CallbackServerContext* context, v1::GenerateResponse* response, Frontend& frontend,
                           StreamWatch& watch)
    : GenerateCall(context, frontend, watch, /*streamed=*/false), response_(response) {}

void UnaryReactor::Write(OutputDelta delta) {
  const bool last = delta.is_last();
  uint64_t too_long = 0;
  grpc::Status status = grpc::Status::OK;
  {
    absl::MutexLock lock(&mutex_);
    if (!is_open()) return;
    pending_.Merge(std::move(delta));
    if (pending_.bytes() > kMaxUnaryBytes) {
      status = ToGrpcStatus(absl::OutOfRangeError(absl::StrCat("the answer has more than ", kMaxUnaryBytes,
                                                               " bytes; use GenerateStream, or ask for less of it")));
      pending_.Clear();
      too_long = handle_;
    } else if (last) {
      ToProto(request_id_, pending_.Take(std::numeric_limits<int64_t>::max()), response_);
    } else {
      return;
    }
    NoteSending(/*is_end=*/true);
  }
  if (too_long != 0) frontend_.Cancel(too_long);
  Finish(status);
}

void UnaryReactor::Fail(const absl::Status& status) { FinishOnce(ToGrpcStatus(status)); }

void UnaryReactor::OnCancel() {
  Leave();
  FinishOnce(Cancelled());
}

void UnaryReactor::FinishOnce(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    NoteSending(/*is_end=*/true);
  }
  Finish(status);
}

}  // namespace quire
