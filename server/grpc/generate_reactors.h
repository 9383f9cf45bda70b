#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/generation.grpc.pb.h"
#include "server/frontend/frontend.h"
#include "server/frontend/pending_output.h"
#include "server/grpc/stream_watch.h"

namespace quire {

// A stream never has more than 1 MiB for its client, half of it in the message under way and half behind that: with
// more, its request is held in the engine until the client has read on. What the steps under way bring comes on top,
// and so do the prompt's log-probabilities, which are asked for once and cost the whole prompt to make again.
inline constexpr int64_t kMaxMessageBytes = 512 << 10;
inline constexpr int64_t kHoldAboveBytes = 512 << 10;
// A unary answer is collected as a whole. More than a stream of the same size would be refused by any client.
inline constexpr int64_t kMaxUnaryBytes = 64 << 20;

// One GenerateStream call: deltas from a detokenizer thread become writes, one at a time; what comes meanwhile is
// merged. Holds itself until OnDone, and the front end holds it as a sink until the request has ended there.
class StreamReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>, public OutputSink, public Stallable {
 public:
  // Takes the call over. `frontend` and `watch` outlive the server.
  static StreamReactor* Start(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                              Frontend& frontend, StreamWatch& watch);

  // OutputSink.
  void Accepted(const std::string& request_id) override;
  void Write(OutputDelta delta) override;
  void Fail(const absl::Status& status) override;
  bool IsGone() const override;
  // Stallable.
  void CancelIfStalled(absl::Time now, absl::Duration stall_timeout) override;
  // gRPC's reactions.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // What to ask of gRPC once the lock is released; at most one of them at a time is under way.
  enum class Action { kNone, kWrite, kWriteAndFinish, kFinish };

  StreamReactor(grpc::CallbackServerContext* context, Frontend& frontend, StreamWatch& watch);
  Action NextAction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Action action);
  // Holds the request or lets it go on, by what is pending. Under the lock, so that the engine hears it in order.
  void UpdateHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;  // valid until OnDone
  Frontend& frontend_;
  StreamWatch& watch_;
  std::string request_id_;  // set before the first Write

  mutable absl::Mutex mutex_;
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mutex_);
  PendingOutput pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_status_ ABSL_GUARDED_BY(mutex_);  // to finish with once nothing is pending
  bool held_ ABSL_GUARDED_BY(mutex_) = false;                       // in the engine, for this client reads too slowly
  bool write_in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time write_started_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;      // the client is, or has been given up
  bool done_ ABSL_GUARDED_BY(mutex_) = false;      // OnDone was called
  uint64_t handle_ ABSL_GUARDED_BY(mutex_) = 0;    // 0: not accepted yet
  v1::GenerateResponse message_;                   // of the write under way
};

// One Generate call: collects everything, answers once.
class UnaryReactor final : public grpc::ServerUnaryReactor, public OutputSink {
 public:
  static UnaryReactor* Start(grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
                             v1::GenerateResponse* response, Frontend& frontend);

  void Accepted(const std::string& request_id) override;
  void Write(OutputDelta delta) override;
  void Fail(const absl::Status& status) override;
  bool IsGone() const override;
  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryReactor(grpc::CallbackServerContext* context, v1::GenerateResponse* response, Frontend& frontend);
  // Calls Finish unless that was done.
  void FinishOnce(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::CallbackServerContext* const context_;  // valid until OnDone, like response_
  v1::GenerateResponse* const response_;
  Frontend& frontend_;
  std::string request_id_;

  mutable absl::Mutex mutex_;
  std::shared_ptr<UnaryReactor> self_ ABSL_GUARDED_BY(mutex_);
  PendingOutput collected_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t handle_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire
