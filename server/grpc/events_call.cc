#include "server/grpc/events_call.h"

#include <algorithm>
#include <utility>

#include "server/grpc/cache_convert.h"
#include "server/grpc/status_details.h"

namespace quire {

EventsCall* EventsCall::Start(grpc::CallbackServerContext* context, const v1::SubscribeKvEventsRequest* request,
                              Frontend& frontend, StreamWatch& watch) {
  const std::shared_ptr<EventsCall> call(new EventsCall(context, frontend, watch));
  {
    absl::MutexLock lock(&call->mutex_);
    call->self_ = call;
  }
  watch.Add(call);
  if (const absl::Status status = call->feed_.Add(call); !status.ok()) {
    call->OnEnd(status);
    return call.get();
  }
  std::optional<int64_t> from;
  if (request->has_from()) from = static_cast<int64_t>(std::min<uint64_t>(request->from(), INT64_MAX));
  call->feed_.Read(call, from, /*at_once=*/true);
  return call.get();
}

void EventsCall::OnEvents(const EventBatch& batch) {
  {
    absl::MutexLock lock(&mutex_);
    if (end_status_) return;
    message_.Clear();
    ToProto(batch, &message_);
    message_.set_log_id(feed_.id());
    if (!std::exchange(has_written_, true)) {
      message_.set_block_size(frontend_.info().block_size);
      message_.set_root(BytesOf(RootHash(frontend_.KeyContextOf(/*salt=*/"", /*tenant=*/""))));
    }
    next_ = batch.first + static_cast<int64_t>(batch.events.size());
    sending_since_ = absl::Now();
  }
  StartWrite(&message_);
}

void EventsCall::OnWriteDone(bool ok) {
  std::optional<grpc::Status> end;
  int64_t next;
  {
    absl::MutexLock lock(&mutex_);
    sending_since_.reset();
    end = end_status_;
    next = next_;
  }
  if (!ok) end = grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
  if (end) return End(*end);  // the first reason counts
  feed_.Read(shared_from_this(), next, /*at_once=*/false);
}

void EventsCall::OnEnd(const absl::Status& status) { End(ToGrpcStatus(status)); }

void EventsCall::End(const grpc::Status& status) {
  grpc::Status first;
  {
    absl::MutexLock lock(&mutex_);
    if (!end_status_) end_status_ = status;
    if (!MustFinish()) return;
    first = *end_status_;
  }
  Finish(first);
}

bool EventsCall::MustFinish() {
  if (finished_ || sending_since_) return false;
  sending_since_ = absl::Now();
  return finished_ = true;
}

void EventsCall::CancelIfStalled(absl::Time now, absl::Duration stall_timeout) {
  absl::MutexLock lock(&mutex_);
  if (done_ || stalled_ || !sending_since_ || now - *sending_since_ < stall_timeout) return;
  watch_.CountStalled();
  stalled_ = true;
  context_->TryCancel();  // ends the write; gRPC calls nothing from in here
}

void EventsCall::OnDone() {
  feed_.Remove(this);
  watch_.Remove(this);
  std::shared_ptr<EventsCall> self;
  absl::MutexLock lock(&mutex_);
  done_ = true;
  self = std::move(self_);
}

}  // namespace quire
