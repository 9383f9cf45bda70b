#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/generation.pb.h"
#include "server/frontend/frontend.h"
#include "server/frontend/pending_output.h"
#include "server/grpc/stream_watch.h"

namespace quire {

// What GenerateStream and Generate have in common: how a request gets into the front end, how it leaves when its client
// goes or does not read, and who keeps the reactor alive: it itself until OnDone, and the front end, which holds it as
// a sink until the request has ended there. Reactors derive from this and from gRPC's class.
class GenerateCall : public OutputSink, public Stallable {
 public:
  // OutputSink.
  void Accepted(const std::string& request_id, uint64_t handle) final;
  bool IsGone() const final;
  // Stallable.
  void CancelIfStalled(absl::Time now, absl::Duration stall_timeout) final;

 protected:
  // `context` is gRPC's until Done; `frontend` and `watch` outlive the server. `streamed`: output is sent as it comes.
  GenerateCall(grpc::CallbackServerContext* context, Frontend& frontend, StreamWatch& watch, bool streamed);

  // Hands the request over. A refusal comes through Fail.
  static void Start(const std::shared_ptr<GenerateCall>& call, const v1::GenerateRequest* request);
  static void Start(const std::shared_ptr<GenerateCall>& call, const v1::ForkRequest* request);
  static void Start(const std::shared_ptr<GenerateCall>& call, const v1::ChatRequest* request);
  // What OnCancel has to do before it finishes the call.
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // What OnDone has to do; may destroy the object.
  void Done() ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether output is still wanted.
  bool is_open() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !gone_ && !finished_; }
  // A message or the end is about to be given to gRPC: the stall timer runs from here, and to OnDone if this is the
  // end.
  void NoteSending(bool is_end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Frontend& frontend_;
  std::string request_id_;  // set before the first Write

  mutable absl::Mutex mutex_;
  PendingOutput pending_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> sending_since_ ABSL_GUARDED_BY(mutex_);  // what gRPC was given last; null: it is sent
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;                    // gRPC was given the end
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;                        // the client is, or has been given up
  uint64_t handle_ ABSL_GUARDED_BY(mutex_) = 0;                      // 0: not accepted yet

 private:
  // Sets what the call itself says of a request: deadline and tenant.
  void Complete(GenerateRequest* request) const;
  static void Start(const std::shared_ptr<GenerateCall>& call, const std::function<absl::StatusOr<uint64_t>()>& submit);

  grpc::CallbackServerContext* const context_;
  const bool streamed_;
  StreamWatch& watch_;
  std::shared_ptr<GenerateCall> self_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;  // context_ is gone
};

}  // namespace quire
