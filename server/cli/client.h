#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "quire/v1/admin.pb.h"
#include "quire/v1/generation.pb.h"
#include "server/cli/session.h"

namespace quire::cli {

// One streaming call. It stays alive by itself from Start until its on_done returned.
class Call {
 public:
  virtual ~Call() = default;
  // Sends the request and returns at once. Once.
  virtual void Start() = 0;
  // Any thread, any number of times, also before Start; on_done still follows.
  virtual void Cancel() = 0;
};

// A connection to quired. The only part of the tool that sees gRPC. Safe to use from many threads at once.
//
// Errors of all calls carry the server's status code and message; Details() of them gives the decoded error details.
class Client {
 public:
  struct Options {
    std::string server;  // HOST:PORT or unix:PATH
    absl::Duration connect_timeout = absl::Seconds(5);
    absl::Duration rpc_timeout = absl::InfiniteDuration();
    std::string api_key = {};  // empty: none is shown
  };

  // Returns once the connection stands. kUnavailable, one line with address and reason, if the first attempt fails or
  // does not end within connect_timeout.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const Options& options);

  virtual ~Client() = default;

  // on_message and on_done come from one thread of the client, never at the same time; on_done is the last of its call
  // and comes exactly once. They must not block on other calls. The client must outlive its started calls.
  template <typename Message>
  using OnMessage = std::function<void(const Message&)>;
  using OnDone = std::function<void(const absl::Status&)>;
  virtual std::shared_ptr<Call> NewGenerate(const v1::GenerateRequest& request,
                                            OnMessage<v1::GenerateResponse> on_message, OnDone on_done) = 0;
  virtual std::shared_ptr<Call> NewFork(const v1::ForkRequest& request, OnMessage<v1::GenerateResponse> on_message,
                                        OnDone on_done) = 0;
  virtual std::shared_ptr<Call> NewChat(const v1::ChatRequest& request, OnMessage<v1::GenerateResponse> on_message,
                                        OnDone on_done) = 0;
  virtual std::shared_ptr<Call> NewSubscribe(const v1::SubscribeKvEventsRequest& request,
                                             OnMessage<v1::KvEvents> on_message, OnDone on_done) = 0;

  virtual absl::StatusOr<v1::GenerateResponse> Generate(const v1::GenerateRequest& request) = 0;
  virtual absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request) = 0;
  virtual absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request) = 0;
  virtual absl::Status Abort(const v1::AbortRequest& request) = 0;
  virtual absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo() = 0;
  virtual absl::StatusOr<v1::GetStatsResponse> GetStats() = 0;

  virtual absl::StatusOr<v1::ListPrefixesResponse> ListPrefixes(const v1::ListPrefixesRequest& request) = 0;
  virtual absl::StatusOr<v1::WarmPrefixResponse> WarmPrefix(const v1::WarmPrefixRequest& request) = 0;
  virtual absl::StatusOr<v1::DropPrefixResponse> DropPrefix(const v1::DropPrefixRequest& request) = 0;
  virtual absl::StatusOr<v1::ResetPrefixCacheResponse> ResetPrefixCache() = 0;
  virtual absl::StatusOr<v1::ScheduleTraceResponse> ScheduleTrace(const v1::ScheduleTraceRequest& request) = 0;

  // grpc.health.v1: "SERVING", "NOT_SERVING", ... kNotFound for a service that the server does not know.
  virtual absl::StatusOr<std::string> CheckHealth(const std::string& service) = 0;
};

// Client::Connect with the session's address and timeouts. On failure the message is printed and null returned: the
// command then ends with kExitNoConnection.
std::unique_ptr<Client> ConnectOrReport(Session& session);

}  // namespace quire::cli
