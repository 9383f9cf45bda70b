#include "server/grpc/generate_call.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/grpc/caller.h"
#include "server/grpc/convert.h"

namespace quire {

GenerateCall::GenerateCall(grpc::CallbackServerContext* context, Frontend& frontend, StreamWatch& watch, bool streamed)
    : frontend_(frontend), context_(context), streamed_(streamed), watch_(watch) {}

void GenerateCall::Start(const std::shared_ptr<GenerateCall>& call, const v1::GenerateRequest* request) {
  Start(call, [&]() -> absl::StatusOr<uint64_t> {
    // Ids are copied: too many of them are refused before.
    if (request->has_token_ids() && !request->has_truncate_prompt_tokens()) {
      QUIRE_RETURN_IF_ERROR(call->frontend_.CheckPromptLength(request->token_ids().ids_size()));
    }
    // gRPC keeps the request for us alone; its text is moved out, not copied.
    GenerateRequest out = FromProto(*const_cast<v1::GenerateRequest*>(request));
    call->Complete(&out);
    return call->frontend_.Generate(std::move(out), call);
  });
}

void GenerateCall::Start(const std::shared_ptr<GenerateCall>& call, const v1::ForkRequest* request) {
  Start(call, [&]() -> absl::StatusOr<uint64_t> {
    const int num_ids = request->request().token_ids().ids_size();
    if (num_ids > 0 && !request->request().has_truncate_prompt_tokens())
      QUIRE_RETURN_IF_ERROR(call->frontend_.CheckPromptLength(num_ids));
    ForkRequest out = FromProto(*const_cast<v1::ForkRequest*>(request));
    call->Complete(&out.request);
    return call->frontend_.Fork(std::move(out), call);
  });
}

void GenerateCall::Start(const std::shared_ptr<GenerateCall>& call, const v1::ChatRequest* request) {
  Start(call, [&]() -> absl::StatusOr<uint64_t> {
    QUIRE_ASSIGN_OR_RETURN(GenerateRequest out, FromProto(*const_cast<v1::ChatRequest*>(request)));
    call->Complete(&out);
    return call->frontend_.Generate(std::move(out), call);
  });
}

void GenerateCall::Start(const std::shared_ptr<GenerateCall>& call,
                         const std::function<absl::StatusOr<uint64_t>()>& submit) {
  {
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  call->watch_.Add(call);
  const absl::Status status = submit().status();
  if (status.ok()) return;
  call->watch_.Remove(call.get());  // nobody waits for those that were refused
  call->Fail(status);
}

void GenerateCall::Complete(GenerateRequest* request) const {
  const auto deadline = context_->deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) request->deadline = absl::FromChrono(deadline);
  request->streamed = streamed_;
  // Whoever has got here is known.
  absl::StatusOr<Caller> caller = CallerOf(*context_, frontend_.options().keys);
  if (caller.ok()) request->tenant = std::move(caller->tenant);
}

void GenerateCall::Accepted(const std::string& request_id, uint64_t handle) {
  request_id_ = request_id;
  bool gone;
  {
    absl::MutexLock lock(&mutex_);
    handle_ = handle;
    gone = gone_;
  }
  if (gone) frontend_.Cancel(handle);  // the client went before there was anything to cancel
}

bool GenerateCall::IsGone() const {
  absl::MutexLock lock(&mutex_);
  return gone_ || done_ || context_->IsCancelled();
}

void GenerateCall::CancelIfStalled(absl::Time now, absl::Duration stall_timeout) {
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    if (done_ || gone_ || !sending_since_ || now - *sending_since_ < stall_timeout) return;
    watch_.CountStalled();  // before anybody can see the consequences
    gone_ = true;
    pending_.Clear();
    // Ends what is under way; OnWriteDone, OnCancel or OnDone go on from there. gRPC calls none of them from in here.
    context_->TryCancel();
    handle = handle_;
  }
  if (handle != 0) frontend_.Cancel(handle);
}

void GenerateCall::Leave() {
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    gone_ = true;
    pending_.Clear();
    handle = handle_;
  }
  if (handle != 0) frontend_.Cancel(handle);
}

void GenerateCall::Done() {
  watch_.Remove(this);
  std::shared_ptr<GenerateCall> self;
  uint64_t handle;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
    self = std::move(self_);
    handle = gone_ ? handle_ : 0;
  }
  if (handle != 0) frontend_.Cancel(handle);  // a write that failed without OnCancel
}

void GenerateCall::NoteSending(bool is_end) {
  sending_since_ = absl::Now();
  finished_ = is_end;
}

}  // namespace quire
