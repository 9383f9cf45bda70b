#include "server/grpc/generate_reactors.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/grpc/convert.h"
#include "server/grpc/status_details.h"

namespace quire {
namespace {

absl::StatusOr<uint64_t> Submit(const grpc::CallbackServerContext& context, const v1::GenerateRequest* request,
                                std::shared_ptr<OutputSink> sink, Frontend& frontend) {
  // Ids are copied: too many of them are refused before.
  if (request->has_token_ids()) QUIRE_RETURN_IF_ERROR(frontend.CheckPromptLength(request->token_ids().ids_size()));
  // gRPC keeps the request for us alone; its text is moved out, not copied.
  GenerateRequest out = FromProto(*const_cast<v1::GenerateRequest*>(request));
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) out.deadline = absl::FromChrono(deadline);
  return frontend.Generate(std::move(out), std::move(sink));
}

}  // namespace

// --- StreamReactor

StreamReactor::StreamReactor(grpc::CallbackServerContext* context, Frontend& frontend, StreamWatch& watch)
    : context_(context), frontend_(frontend), watch_(watch) {}

StreamReactor* StreamReactor::Start(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                                    Frontend& frontend, StreamWatch& watch) {
  std::shared_ptr<StreamReactor> reactor(new StreamReactor(context, frontend, watch));
  {
    absl::MutexLock lock(&reactor->mutex_);
    reactor->self_ = reactor;
  }
  watch.Add(reactor);
  const absl::StatusOr<uint64_t> handle = Submit(*context, request, reactor, frontend);
  if (!handle.ok()) {
    watch.Remove(reactor.get());  // nobody waits for those that were refused
    reactor->Fail(handle.status());
    return reactor.get();
  }
  bool gone;
  {
    absl::MutexLock lock(&reactor->mutex_);
    reactor->handle_ = *handle;
    gone = reactor->gone_;
  }
  if (gone) frontend.Cancel(*handle);
  return reactor.get();
}

void StreamReactor::Accepted(const std::string& request_id) { request_id_ = request_id; }

void StreamReactor::Write(OutputDelta delta) {
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    if (gone_ || finished_) return;
    pending_.Merge(std::move(delta));
    action = NextAction();
    UpdateHold();
  }
  Do(action);
}

void StreamReactor::UpdateHold() {
  const bool hold = held_ ? !pending_.empty() : pending_.bytes() - pending_.prompt_bytes() > kHoldAboveBytes;
  if (hold == held_ || handle_ == 0) return;
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

bool StreamReactor::IsGone() const {
  absl::MutexLock lock(&mutex_);
  return gone_ || done_ || context_->IsCancelled();
}

void StreamReactor::CancelIfStalled(absl::Time now, absl::Duration stall_timeout) {
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    if (done_ || gone_ || !write_in_flight_ || now - write_started_ < stall_timeout) return;
    watch_.CountStalled();  // before anybody can see the consequences
    gone_ = true;
    pending_.Clear();
    // Ends the write under way; OnWriteDone or OnCancel go on from there. gRPC never calls OnCancel from in here.
    context_->TryCancel();
    handle = handle_;
  }
  if (handle != 0) frontend_.Cancel(handle);
}

void StreamReactor::OnWriteDone(bool ok) {
  Action action;
  {
    absl::MutexLock lock(&mutex_);
    write_in_flight_ = false;
    if (!ok) gone_ = true;
    action = NextAction();
    UpdateHold();
  }
  Do(action);
}

void StreamReactor::OnCancel() {
  Action action;
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
    pending_.Clear();
    handle = handle_;
    action = NextAction();
  }
  if (handle != 0) frontend_.Cancel(handle);
  Do(action);
}

void StreamReactor::OnDone() {
  watch_.Remove(this);
  std::shared_ptr<StreamReactor> self;
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    self = std::move(self_);
    handle = gone_ ? handle_ : 0;
  }
  if (handle != 0) frontend_.Cancel(handle);  // a write that failed without OnCancel
}

StreamReactor::Action StreamReactor::NextAction() {
  if (write_in_flight_ || finished_) return Action::kNone;
  if (gone_) {
    finished_ = true;
    end_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
    return Action::kFinish;
  }
  if (!pending_.empty()) {
    const OutputDelta delta = pending_.Take(kMaxMessageBytes);
    message_.Clear();
    ToProto(request_id_, delta, &message_);
    write_in_flight_ = true;
    write_started_ = absl::Now();
    if (!delta.is_last()) return Action::kWrite;
    finished_ = true;
    return Action::kWriteAndFinish;
  }
  if (!end_status_) return Action::kNone;
  finished_ = true;
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

UnaryReactor::UnaryReactor(grpc::CallbackServerContext* context, v1::GenerateResponse* response, Frontend& frontend)
    : context_(context), response_(response), frontend_(frontend) {}

UnaryReactor* UnaryReactor::Start(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                                  v1::GenerateResponse* response, Frontend& frontend) {
  std::shared_ptr<UnaryReactor> reactor(new UnaryReactor(context, response, frontend));
  {
    absl::MutexLock lock(&reactor->mutex_);
    reactor->self_ = reactor;
  }
  const absl::StatusOr<uint64_t> handle = Submit(*context, request, reactor, frontend);
  if (!handle.ok()) {
    reactor->Fail(handle.status());
    return reactor.get();
  }
  bool gone;
  {
    absl::MutexLock lock(&reactor->mutex_);
    reactor->handle_ = *handle;
    gone = reactor->gone_;
  }
  if (gone) frontend.Cancel(*handle);
  return reactor.get();
}

void UnaryReactor::Accepted(const std::string& request_id) { request_id_ = request_id; }

void UnaryReactor::Write(OutputDelta delta) {
  const bool last = delta.is_last();
  uint64_t handle = 0;
  grpc::Status status = grpc::Status::OK;
  {
    absl::MutexLock lock(&mutex_);
    if (gone_ || finished_) return;
    collected_.Merge(std::move(delta));
    if (collected_.bytes() > kMaxUnaryBytes) {
      status = ToGrpcStatus(absl::OutOfRangeError(
          absl::StrCat("the answer has more than ", kMaxUnaryBytes, " bytes; use GenerateStream or ask for less")));
      gone_ = true;
      handle = handle_;
      collected_.Clear();
    } else if (last) {
      ToProto(request_id_, collected_.Take(std::numeric_limits<int64_t>::max()), response_);
    } else {
      return;
    }
  }
  if (handle != 0) frontend_.Cancel(handle);
  FinishOnce(status);
}

void UnaryReactor::Fail(const absl::Status& status) { FinishOnce(ToGrpcStatus(status)); }

bool UnaryReactor::IsGone() const {
  absl::MutexLock lock(&mutex_);
  return gone_ || done_ || context_->IsCancelled();
}

void UnaryReactor::OnCancel() {
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
    handle = handle_;
  }
  if (handle != 0) frontend_.Cancel(handle);
  FinishOnce(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
}

void UnaryReactor::OnDone() {
  std::shared_ptr<UnaryReactor> self;
  absl::MutexLock lock(&mutex_);
  done_ = true;
  self = std::move(self_);
}

void UnaryReactor::FinishOnce(const grpc::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    finished_ = true;
  }
  Finish(status);
}

}  // namespace quire
