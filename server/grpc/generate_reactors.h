#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/generation.grpc.pb.h"
#include "server/grpc/generate_call.h"

namespace quire {

// A stream never has more than 1 MiB for its client, half of it in the message under way and half behind that: with
// more, its request is held in the engine until the client has read on. What the steps under way bring comes on top.
inline constexpr int64_t kMaxMessageBytes = 512 << 10;
inline constexpr int64_t kHoldAboveBytes = 512 << 10;
// A unary answer is collected as a whole. By default no client takes a larger message.
inline constexpr int64_t kMaxUnaryBytes = 4 << 20;

// One GenerateStream, Fork or ChatStream call: deltas from a detokenizer thread become writes, one at a time; what
// comes meanwhile is merged.
class StreamReactor final : public grpc::ServerWriteReactor<v1::GenerateResponse>, public GenerateCall {
 public:
  // Takes the call over. Request: v1::GenerateRequest, v1::ForkRequest or v1::ChatRequest.
  template <typename Request>
  static StreamReactor* Start(grpc::CallbackServerContext* context, const Request* request, Frontend& frontend,
                              StreamWatch& watch) {
    const std::shared_ptr<StreamReactor> reactor(new StreamReactor(context, frontend, watch, /*streamed=*/true));
    GenerateCall::Start(reactor, request);
    return reactor.get();
  }

  // OutputSink.
  void Write(OutputDelta delta) override;
  void Fail(const absl::Status& status) override;
  // gRPC's reactions.
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { Done(); }

 private:
  // What to ask of gRPC once the lock is released; at most one of them at a time is under way.
  enum class Action { kNone, kWrite, kWriteAndFinish, kFinish };

  using GenerateCall::GenerateCall;
  Action NextAction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Do(Action action);
  // Holds the request or lets it go on, by what is pending. Under the lock, so that the engine hears it in order.
  void UpdateHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::optional<grpc::Status> end_status_ ABSL_GUARDED_BY(mutex_);  // to finish with once nothing is pending
  bool held_ ABSL_GUARDED_BY(mutex_) = false;                       // in the engine, for this client reads too slowly
  v1::GenerateResponse message_;                                    // of the write under way
};

// One Generate or Chat call: collects everything, answers once.
class UnaryReactor final : public grpc::ServerUnaryReactor, public GenerateCall {
 public:
  // Takes the call over. Request: v1::GenerateRequest or v1::ChatRequest. `response` is gRPC's until OnDone.
  template <typename Request>
  static UnaryReactor* Start(grpc::CallbackServerContext* context, const Request* request,
                             v1::GenerateResponse* response, Frontend& frontend, StreamWatch& watch) {
    const std::shared_ptr<UnaryReactor> reactor(new UnaryReactor(context, response, frontend, watch));
    GenerateCall::Start(reactor, request);
    return reactor.get();
  }

  void Write(OutputDelta delta) override;
  void Fail(const absl::Status& status) override;
  void OnCancel() override;
  void OnDone() override { Done(); }

 private:
  UnaryReactor(grpc::CallbackServerContext* context, v1::GenerateResponse* response, Frontend& frontend,
               StreamWatch& watch);
  // Calls Finish unless that was done.
  void FinishOnce(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  v1::GenerateResponse* const response_;
};

}  // namespace quire
