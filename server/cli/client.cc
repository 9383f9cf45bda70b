#include "server/cli/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/generation.grpc.pb.h"

namespace quire::cli {
namespace {

constexpr char kDetailsTrailer[] = "grpc-status-details-bin";
constexpr int kMaxMessageBytes = 64 << 20;  // as the server's limit

// What `bytes`, a serialized google.rpc.Status, adds to the message.
std::string DecodeDetails(const std::string& bytes, const std::string& message) {
  google::rpc::Status status;
  if (!status.ParseFromString(bytes)) return "";
  std::string text;
  for (const google::protobuf::Any& detail : status.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        const std::string& what = violation.description();
        // Servers differ in whether the description repeats the field, and the message the description.
        const std::string line =
            absl::StartsWith(what, violation.field()) ? what : absl::StrCat(violation.field(), ": ", what);
        if (!absl::StrContains(message, line)) absl::StrAppend(&text, line, "\n");
      }
    } else if (detail.UnpackTo(&retry)) {
      const double seconds = retry.retry_delay().seconds() + retry.retry_delay().nanos() * 1e-9;
      absl::StrAppendFormat(&text, "retry after %.3g s\n", seconds);
    } else if (detail.UnpackTo(&info)) {
      absl::StrAppend(&text, "reason ", info.reason(), " (", info.domain(), ")\n");
      for (const auto& [key, value] : info.metadata()) absl::StrAppend(&text, key, ": ", value, "\n");
    } else {
      absl::StrAppend(&text, detail.type_url(), "\n");
    }
  }
  return text;
}

absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  std::string details = DecodeDetails(status.error_details(), status.error_message());
  if (details.empty()) {
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto trailer = trailers.find(kDetailsTrailer);
    if (trailer != trailers.end()) {
      details = DecodeDetails({trailer->second.data(), trailer->second.size()}, status.error_message());
    }
  }
  if (!details.empty()) SetDetails(result, details);
  return result;
}

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  if (timeout != absl::InfiniteDuration()) context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

// A streaming call as a chain of operations on a completion queue. Step comes once for each, from the one thread that
// polls the queue. (gRPC 1.51's callback API is not used: its threads outlive their queue now and then, which aborts.)
class StreamCall : public Call, public std::enable_shared_from_this<StreamCall> {
 public:
  void Start() override {
    self_ = shared_from_this();
    SetDeadline(timeout_, &context_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  // The operation in flight has ended; `ok` is false if a read found the end of the stream.
  void Step(bool ok) {
    if (state_ == State::kFinishing) {
      const std::shared_ptr<StreamCall> keep_alive = std::move(self_);
      on_done_(ToStatus(status_, context_));
      return;
    }
    if (state_ == State::kReading && ok) TakeMessage();
    state_ = ok ? State::kReading : State::kFinishing;
    if (ok) {
      Read();
    } else {
      Finish();
    }
  }

 protected:
  StreamCall(absl::Duration timeout, Client::OnDone on_done) : timeout_(timeout), on_done_(std::move(on_done)) {}

  virtual void StartCall() = 0;
  virtual void Read() = 0;
  virtual void TakeMessage() = 0;
  virtual void Finish() = 0;

  // What the queue gives back.
  void* tag() { return this; }

  grpc::ClientContext context_;
  grpc::Status status_;

 private:
  enum class State { kStarting, kReading, kFinishing };

  const absl::Duration timeout_;
  const Client::OnDone on_done_;
  State state_ = State::kStarting;
  std::shared_ptr<StreamCall> self_;  // from Start to the end
};

template <typename Request, typename Message>
class StreamCallOf final : public StreamCall {
 public:
  // Makes the call of a stub, to be started.
  using Prepare =
      std::function<std::unique_ptr<grpc::ClientAsyncReader<Message>>(grpc::ClientContext*, const Request&)>;
  StreamCallOf(Prepare prepare, const Request& request, absl::Duration timeout, Client::OnMessage<Message> on_message,
               Client::OnDone on_done)
      : StreamCall(timeout, std::move(on_done)),
        prepare_(std::move(prepare)),
        request_(request),
        on_message_(std::move(on_message)) {}

 private:
  void StartCall() override {
    reader_ = prepare_(&context_, request_);
    reader_->StartCall(tag());
  }
  void Read() override { reader_->Read(&message_, tag()); }
  void TakeMessage() override { on_message_(message_); }
  void Finish() override { reader_->Finish(&status_, tag()); }

  const Prepare prepare_;
  const Request request_;
  const Client::OnMessage<Message> on_message_;
  Message message_;
  std::unique_ptr<grpc::ClientAsyncReader<Message>> reader_;
};

class GrpcClient : public Client {
 public:
  GrpcClient(std::shared_ptr<grpc::Channel> channel, absl::Duration rpc_timeout)
      : rpc_timeout_(rpc_timeout),
        generation_(v1::Generation::NewStub(channel)),
        admin_(v1::Admin::NewStub(channel)),
        health_(grpc::health::v1::Health::NewStub(channel)),
        poller_([this] { Poll(); }) {}

  ~GrpcClient() override {
    queue_.Shutdown();
    poller_.join();
  }

  std::shared_ptr<Call> NewGenerate(const v1::GenerateRequest& request, OnMessage<v1::GenerateResponse> on_message,
                                    OnDone on_done) override {
    const auto prepare = [this](grpc::ClientContext* context, const v1::GenerateRequest& sent) {
      return generation_->PrepareAsyncGenerateStream(context, sent, &queue_);
    };
    return std::make_shared<StreamCallOf<v1::GenerateRequest, v1::GenerateResponse>>(
        prepare, request, rpc_timeout_, std::move(on_message), std::move(on_done));
  }
  std::shared_ptr<Call> NewFork(const v1::ForkRequest& request, OnMessage<v1::GenerateResponse> on_message,
                                OnDone on_done) override {
    const auto prepare = [this](grpc::ClientContext* context, const v1::ForkRequest& sent) {
      return generation_->PrepareAsyncFork(context, sent, &queue_);
    };
    return std::make_shared<StreamCallOf<v1::ForkRequest, v1::GenerateResponse>>(
        prepare, request, rpc_timeout_, std::move(on_message), std::move(on_done));
  }
  std::shared_ptr<Call> NewChat(const v1::ChatRequest& request, OnMessage<v1::GenerateResponse> on_message,
                                OnDone on_done) override {
    const auto prepare = [this](grpc::ClientContext* context, const v1::ChatRequest& sent) {
      return generation_->PrepareAsyncChatStream(context, sent, &queue_);
    };
    return std::make_shared<StreamCallOf<v1::ChatRequest, v1::GenerateResponse>>(
        prepare, request, rpc_timeout_, std::move(on_message), std::move(on_done));
  }
  std::shared_ptr<Call> NewSubscribe(const v1::SubscribeKvEventsRequest& request, OnMessage<v1::KvEvents> on_message,
                                     OnDone on_done) override {
    const auto prepare = [this](grpc::ClientContext* context, const v1::SubscribeKvEventsRequest& sent) {
      return admin_->PrepareAsyncSubscribeKvEvents(context, sent, &queue_);
    };
    return std::make_shared<StreamCallOf<v1::SubscribeKvEventsRequest, v1::KvEvents>>(
        prepare, request, rpc_timeout_, std::move(on_message), std::move(on_done));
  }

  absl::StatusOr<v1::GenerateResponse> Generate(const v1::GenerateRequest& request) override {
    return Unary<v1::GenerateResponse>(generation_.get(), &v1::Generation::Stub::Generate, request);
  }
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request) override {
    return Unary<v1::TokenizeResponse>(generation_.get(), &v1::Generation::Stub::Tokenize, request);
  }
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request) override {
    return Unary<v1::DetokenizeResponse>(generation_.get(), &v1::Generation::Stub::Detokenize, request);
  }
  absl::Status Abort(const v1::AbortRequest& request) override {
    return Unary<v1::AbortResponse>(generation_.get(), &v1::Generation::Stub::Abort, request).status();
  }
  absl::StatusOr<v1::GetModelInfoResponse> GetModelInfo() override {
    return Unary<v1::GetModelInfoResponse>(generation_.get(), &v1::Generation::Stub::GetModelInfo,
                                           v1::GetModelInfoRequest());
  }
  absl::StatusOr<v1::GetStatsResponse> GetStats() override {
    return Unary<v1::GetStatsResponse>(generation_.get(), &v1::Generation::Stub::GetStats, v1::GetStatsRequest());
  }

  absl::StatusOr<v1::ListPrefixesResponse> ListPrefixes(const v1::ListPrefixesRequest& request) override {
    return Unary<v1::ListPrefixesResponse>(admin_.get(), &v1::Admin::Stub::ListPrefixes, request);
  }
  absl::StatusOr<v1::WarmPrefixResponse> WarmPrefix(const v1::WarmPrefixRequest& request) override {
    return Unary<v1::WarmPrefixResponse>(admin_.get(), &v1::Admin::Stub::WarmPrefix, request);
  }
  absl::StatusOr<v1::DropPrefixResponse> DropPrefix(const v1::DropPrefixRequest& request) override {
    return Unary<v1::DropPrefixResponse>(admin_.get(), &v1::Admin::Stub::DropPrefix, request);
  }
  absl::StatusOr<v1::ResetPrefixCacheResponse> ResetPrefixCache() override {
    return Unary<v1::ResetPrefixCacheResponse>(admin_.get(), &v1::Admin::Stub::ResetPrefixCache,
                                               v1::ResetPrefixCacheRequest());
  }
  absl::StatusOr<v1::ScheduleTraceResponse> ScheduleTrace(const v1::ScheduleTraceRequest& request) override {
    return Unary<v1::ScheduleTraceResponse>(admin_.get(), &v1::Admin::Stub::ScheduleTrace, request);
  }

  absl::StatusOr<std::string> CheckHealth(const std::string& service) override {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    auto response =
        Unary<grpc::health::v1::HealthCheckResponse>(health_.get(), &grpc::health::v1::Health::Stub::Check, request);
    if (!response.ok()) return response.status();
    return grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response->status());
  }

 private:
  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<StreamCall*>(tag)->Step(ok);
  }

  template <typename Response, typename Stub, typename Request>
  absl::StatusOr<Response> Unary(Stub* stub,
                                 grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request) {
    grpc::ClientContext context;
    SetDeadline(rpc_timeout_, &context);
    Response response;
    const grpc::Status status = (stub->*method)(&context, request, &response);
    if (!status.ok()) return ToStatus(status, context);
    return response;
  }

  const absl::Duration rpc_timeout_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Admin::Stub> admin_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  grpc::CompletionQueue queue_;  // of the streaming calls
  std::thread poller_;           // last: it uses the others
};

// Shows a key with every call.
class KeyShower final : public grpc::experimental::Interceptor {
 public:
  explicit KeyShower(const std::string& authorization) : authorization_(authorization) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA))
      methods->GetSendInitialMetadata()->insert({"authorization", authorization_});
    methods->Proceed();
  }

 private:
  const std::string& authorization_;
};

class KeyShowers final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit KeyShowers(const std::string& key) : authorization_("Bearer " + key) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new KeyShower(authorization_);  // gRPC's
  }

 private:
  const std::string authorization_;
};

// Why the channel does not connect, from a call that fails with it; gRPC tells it nowhere else.
std::string ConnectFailure(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  return status.ok() ? "the connection broke" : status.error_message();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const Options& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A proxy of the environment has no business between a person and the own daemon.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!options.api_key.empty()) interceptors.push_back(std::make_unique<KeyShowers>(options.api_key));
  std::shared_ptr<grpc::Channel> channel = grpc::experimental::CreateCustomChannelWithInterceptors(
      options.server, grpc::InsecureChannelCredentials(), arguments, std::move(interceptors));
  const auto deadline = absl::ToChronoTime(absl::Now() + options.connect_timeout);
  for (grpc_connectivity_state state = channel->GetState(true); state != GRPC_CHANNEL_READY;
       state = channel->GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
      return absl::UnavailableError(
          absl::StrFormat("cannot connect to %s: %s", options.server, ConnectFailure(channel)));
    }
    if (!channel->WaitForStateChange(state, deadline)) {
      return absl::UnavailableError(absl::StrFormat("cannot connect to %s: no answer within %s", options.server,
                                                    absl::FormatDuration(options.connect_timeout)));
    }
  }
  return std::make_unique<GrpcClient>(std::move(channel), options.rpc_timeout);
}

std::unique_ptr<Client> ConnectOrReport(Session& session) {
  auto client = Client::Connect({session.server, session.connect_timeout, session.timeout, session.api_key});
  if (client.ok()) return *std::move(client);
  ReportError(session, client.status().message(), kExitNoConnection);
  return nullptr;
}

}  // namespace quire::cli
