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

// What a message may hold: clients accept 4 MiB by default.
inline constexpr int64_t kMaxMessageBytes = 3 << 20;
// What is held for a client that does not read, the prompt's log-probabilities aside (a request asks for those once).
inline constexpr int64_t kMaxPendingBytes = 1 << 20;
// A client may fall behind by that much if it keeps reading: whole-vocabulary log-probabilities come in big pieces.
inline constexpr int64_t kMaxPendingBytesWhileReading = 64 << 20;
inline constexpr absl::Duration kReadingPause = absl::Seconds(1);

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
  void GiveUpLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::CallbackServerContext* const context_;  // valid until OnDone
  Frontend& frontend_;
  StreamWatch& watch_;
  std::string request_id_;  // set before the first Write

  mutable absl::Mutex mutex_;
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mutex_);
  PendingOutput pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_status_ ABSL_GUARDED_BY(mutex_);  // to finish with once nothing is pending
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
