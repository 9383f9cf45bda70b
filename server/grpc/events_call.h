#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/admin.pb.h"
#include "server/frontend/event_feed.h"
#include "server/frontend/frontend.h"
#include "server/grpc/stream_watch.h"

namespace quire {

// One SubscribeKvEvents call. It asks for events when its client has taken those before. Keeps itself alive until
// OnDone.
class EventsCall final : public grpc::ServerWriteReactor<v1::KvEvents>,
                         public EventReader,
                         public Stallable,
                         public std::enable_shared_from_this<EventsCall> {
 public:
  // `frontend` and `watch` outlive the server. Refusals come as the call's status.
  static EventsCall* Start(grpc::CallbackServerContext* context, const v1::SubscribeKvEventsRequest* request,
                           Frontend& frontend, StreamWatch& watch);

  // EventReader.
  void OnEvents(const EventBatch& batch) override;
  void OnEnd(const absl::Status& status) override;
  // Stallable.
  void CancelIfStalled(absl::Time now, absl::Duration stall_timeout) override;
  // gRPC.
  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled")); }
  void OnDone() override;

 private:
  EventsCall(grpc::CallbackServerContext* context, Frontend& frontend, StreamWatch& watch)
      : feed_(frontend.cache().events()), frontend_(frontend), context_(context), watch_(watch) {}

  void End(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // True if the caller is to finish the call now.
  bool MustFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  EventFeed& feed_;
  Frontend& frontend_;
  grpc::CallbackServerContext* const context_;  // gRPC's until OnDone
  StreamWatch& watch_;
  v1::KvEvents message_;  // under way if sending_since_ is set

  absl::Mutex mutex_;
  std::shared_ptr<EventsCall> self_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> sending_since_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_status_ ABSL_GUARDED_BY(mutex_);  // the first reason to end
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 0;                        // number of the event to read
  bool has_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC was given the end
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;  // context_ is gone
};

}  // namespace quire
