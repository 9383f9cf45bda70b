#include "server/grpc/grpc_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "grpc/grpc.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "kernels/base/status_macros.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/generation_service.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

constexpr absl::Duration kWatchInterval = absl::Milliseconds(100);

// What gRPC's core has to say is rarely for an operator.
void ForwardLog(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_ERROR) {
    spdlog::debug("grpc: {}", args->message);
  }
}

// Of messages that cannot be read, malformed UTF-8 above all: a client could fill the log with them, past its format.
void ForwardProtobufLog(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  spdlog::debug("protobuf: {}", message);
}

// The path of "unix:PATH"; empty for other addresses.
std::string UnixPath(const std::string& listen) { return listen.rfind("unix:", 0) == 0 ? listen.substr(5) : ""; }

absl::Status CheckAddress(const std::string& option, const std::string& listen) {
  if (!UnixPath(listen).empty()) {
    if (UnixPath(listen).size() < sizeof(sockaddr_un::sun_path)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(option, ": the path has ", UnixPath(listen).size(),
                                                      " bytes; at most ", sizeof(sockaddr_un::sun_path) - 1,
                                                      " are possible"));
  }
  const size_t colon = listen.rfind(':');
  int32_t port = -1;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port < 0 ||
      port > 65535)
    return absl::FailedPreconditionError(
        absl::StrCat(option, ": '", listen, "' is not allowed; must be HOST:PORT with port 0 to 65535, or unix:PATH"));
  return absl::OkStatus();
}

// gRPC takes a socket's path over from whoever listens there; we do not.
bool SomebodyListens(const std::string& unix_path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, unix_path.data(), unix_path.size());
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

int Milliseconds(absl::Duration duration) { return static_cast<int>(absl::ToInt64Milliseconds(duration)); }

void SetArguments(const GrpcServerOptions& options, grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(options.min_ping_interval));
}

// Tells with what status calls end.
class StatusTeller final : public grpc::experimental::Interceptor {
 public:
  explicit StatusTeller(const std::function<void(int code)>& tell) : tell_(tell) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS))
      tell_(methods->GetSendStatus().error_code());
    methods->Proceed();
  }

 private:
  const std::function<void(int code)>& tell_;
};

class StatusTellers final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit StatusTellers(const std::function<void(int code)>& tell) : tell_(tell) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo*) override {
    return new StatusTeller(tell_);  // gRPC's
  }

 private:
  const std::function<void(int code)>& tell_;
};

}  // namespace

GrpcServer::GrpcServer(GrpcServerOptions options)
    : options_(std::move(options)),
      service_(std::make_unique<GenerationService>(
          ServedModel{options_.version, options_.max_num_seqs, options_.max_num_batched_tokens})),
      admin_(std::make_unique<AdminService>()) {}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options) {
  std::unique_ptr<GrpcServer> server(new GrpcServer(std::move(options)));
  QUIRE_RETURN_IF_ERROR(server->Open());
  return server;
}

absl::Status GrpcServer::Open() {
  const std::string& listen = options_.listen;
  QUIRE_RETURN_IF_ERROR(CheckAddress(options_.option, listen));
  const std::string unix_path = UnixPath(listen);
  if (!unix_path.empty() && SomebodyListens(unix_path))
    return absl::UnavailableError(absl::StrCat(options_.option, ": another process listens on ", listen));

  // Never given back: the library's shut-down with its last user may wait 10 s for a poller of its own.
  [[maybe_unused]] static const bool kInitialized = (grpc_init(), true);
  gpr_set_log_function(&ForwardLog);
  google::protobuf::SetLogHandler(&ForwardProtobufLog);
  grpc::EnableDefaultHealthCheckService(true);
  if (options_.serves_reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetArguments(options_, &builder);
  int port = -1;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  if (options_.serves_generation) builder.RegisterService(service_.get());
  if (options_.serves_admin) builder.RegisterService(admin_.get());
  if (options_.on_status) {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> tellers;
    tellers.push_back(std::make_unique<StatusTellers>(options_.on_status));
    builder.experimental().SetInterceptorCreators(std::move(tellers));
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || (unix_path.empty() && port <= 0))
    return absl::UnavailableError(absl::StrCat(options_.option, ": cannot listen on ", listen,
                                               "; another process may, or the address is not of this machine"));
  SetHealth(false);
  address_ = unix_path.empty() ? absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port) : listen;
  watcher_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

GrpcServer::~GrpcServer() { Shutdown(absl::Now()); }

void GrpcServer::SetFrontend(Frontend* frontend) {
  service_->SetFrontend(frontend);
  admin_->SetFrontend(frontend);
  absl::MutexLock lock(&mutex_);
  frontend_ = frontend;
  UpdateHealth();
}

void GrpcServer::SetDraining() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  UpdateHealth();
}

bool GrpcServer::WaitStreamsSent(absl::Time deadline) { return service_->streams().WaitEmpty(deadline); }

void GrpcServer::Shutdown(absl::Time deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  if (watcher_.joinable()) watcher_.join();
  if (server_ != nullptr) {
    server_->Shutdown(absl::ToChronoTime(deadline));
    server_->Wait();
  }
  if (const std::string path = UnixPath(address_); !path.empty()) unlink(path.c_str());
}

void GrpcServer::Watch() {
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kWatchInterval)) {
    UpdateHealth();
    mutex_.Unlock();
    service_->streams().CancelStalled(absl::Now(), options_.stall_timeout);
    admin_->streams().CancelStalled(absl::Now(), options_.stall_timeout);
    mutex_.Lock();
  }
}

void GrpcServer::UpdateHealth() {
  const bool serving = frontend_ != nullptr && !draining_ && frontend_->IsHealthy();
  if (serving == serving_) return;
  serving_ = serving;
  spdlog::info("health at {} is {}", address_, serving ? "SERVING" : "NOT_SERVING");
  SetHealth(serving);
}

std::vector<const char*> GrpcServer::HealthNames() const {
  std::vector<const char*> names = {""};  // the process
  if (options_.serves_generation) names.push_back("quire.v1.Generation");
  if (options_.serves_admin) names.push_back("quire.v1.Admin");
  return names;
}

void GrpcServer::SetHealth(bool serving) {
  for (const char* name : HealthNames()) server_->GetHealthCheckService()->SetServingStatus(name, serving);
}

}  // namespace quire
