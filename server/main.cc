// quired: the daemon. Start-up, drain and exit codes; everything else is elsewhere.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/tokenizer.h"
#include "scheduler/engine.h"
#include "server/config/exit_code.h"
#include "server/config/server_config.h"
#include "server/daemon/logging.h"
#include "server/daemon/notify.h"
#include "server/daemon/signals.h"
#include "server/frontend/api_keys.h"
#include "server/frontend/chat_format.h"
#include "server/frontend/frontend.h"
#include "server/grpc/grpc_server.h"
#include "server/http/http_api.h"
#include "server/http/http_server.h"
#include "server/metrics/metrics.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

int Refuse(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "quired: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Each connection is a descriptor: take all that the system grants.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

FrontendOptions MakeFrontendOptions(const ServerConfig& config, const ApiKeyStore* keys, Metrics& metrics) {
  FrontendOptions options;
  options.keys = keys;
  options.served_model_names = config.model.served_model_names;
  options.use_generation_config = config.model.use_generation_config;
  options.max_logprobs = config.model.max_logprobs;
  options.processed_logprobs = config.model.processed_logprobs;
  options.seed = config.engine.seed;
  options.num_output_shards = config.engine.num_output_shards;
  // At least two: one long text shall not make all others wait.
  options.num_tokenizer_threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 4);
  options.max_encoding_requests = config.engine.max_queued_requests;
  options.max_remembered_tokens = config.fork_memory_tokens;
  options.on_finished = [&metrics](const RequestRecord& record) {
    metrics.OnFinished(record);
    LogRequest(record);
  };
  options.on_token = [&metrics](absl::Duration gap, bool is_first) { metrics.OnToken(gap, is_first); };
  return options;
}

void LogEngine(const EngineInfo& info, int32_t max_model_len) {
  const int64_t tokens = int64_t{info.num_kv_blocks} * info.block_size;
  spdlog::info("{} on {}: {} KV blocks of {} tokens hold {} tokens, {} sequences of the full {} tokens",
               info.config.architecture, info.device, info.num_kv_blocks, info.block_size, tokens,
               tokens / std::max(info.max_model_len, 1), info.max_model_len);
  if (max_model_len > info.max_model_len) {
    spdlog::warn("--max-model-len {} is cut to the model's {}", max_model_len, info.max_model_len);
  }
}

void LogChat(const ChatFormat& chat) {
  if (!chat.status().ok()) return spdlog::warn("no chat: {}", std::string(chat.status().message()));
  spdlog::info("chat: tool calls {}, reasoning {}", Name(chat.tool_syntax()), Name(chat.reasoning_syntax()));
}

// The ports that clients come to.
struct Ports {
  std::unique_ptr<GrpcServer> main;   // null: no gRPC
  std::unique_ptr<GrpcServer> admin;  // null: administration is at the main one
  std::unique_ptr<HttpApi> http_api;
  std::unique_ptr<HttpServer> http;  // null: no HTTP

  void ForEach(const std::function<void(GrpcServer&)>& body) const {
    if (main != nullptr) body(*main);
    if (admin != nullptr) body(*admin);
  }
};

absl::Status OpenHttp(const ServerConfig& config, Metrics& metrics, Ports* ports) {
  HttpApiOptions api;
  api.version = kVersion;
  api.metrics_need_key = !config.metrics_without_key;
  api.metrics = [&metrics](const Frontend& frontend) { return metrics.Text(frontend); };
  ports->http_api = std::make_unique<HttpApi>(std::move(api));
  HttpServerOptions options;
  options.listen = config.http_listen;
  options.max_body_bytes = config.max_request_bytes;
  options.max_connections = config.max_connections;
  options.idle_timeout = config.http_idle_timeout;
  options.stall_timeout = config.stall_timeout;
  options.allowed_origins = config.allowed_origins;
  options.on_answer = [&metrics](int status) { metrics.OnHttpAnswer(status); };
  QUIRE_ASSIGN_OR_RETURN(ports->http, HttpServer::Start(std::move(options), *ports->http_api));
  return absl::OkStatus();
}

absl::StatusOr<Ports> OpenPorts(const ServerConfig& config, Metrics& metrics) {
  GrpcServerOptions options;
  options.listen = config.grpc_listen;
  options.serves_admin = config.admin_listen.empty();
  options.serves_reflection = config.api_key_file.empty();
  options.stall_timeout = config.stall_timeout;
  options.version = kVersion;
  options.max_message_bytes = config.max_request_bytes;
  options.max_num_seqs = config.engine.scheduler.max_num_seqs;
  options.max_num_batched_tokens = config.engine.scheduler.max_num_batched_tokens;
  options.on_status = [&metrics](int code) { metrics.OnGrpcStatus(code); };
  Ports ports;
  if (!options.listen.empty()) {
    QUIRE_ASSIGN_OR_RETURN(ports.main, GrpcServer::Start(options));
  }
  if (!config.http_listen.empty()) QUIRE_RETURN_IF_ERROR(OpenHttp(config, metrics, &ports));
  if (options.serves_admin) return ports;
  options.listen = config.admin_listen;
  options.option = "--admin-listen";
  options.serves_generation = false;
  options.serves_admin = true;
  QUIRE_ASSIGN_OR_RETURN(ports.admin, GrpcServer::Start(options));
  return ports;
}

// Returns when nothing runs any more, after drain_timeout, or at a second signal. True in the last case.
bool Drain(const ServerConfig& config, Signals& signals, const Ports& ports, Frontend& frontend) {
  const auto set_draining = [](GrpcServer& server) { server.SetDraining(); };
  NotifySystemd("STOPPING=1");
  if (config.lame_duck > absl::ZeroDuration()) {
    ports.ForEach(set_draining);
    if (ports.http != nullptr) ports.http_api->SetDraining();
    if (signals.WaitFor(2, absl::Now() + config.lame_duck)) return true;
  }
  frontend.BeginDrain();
  ports.ForEach(set_draining);
  if (ports.http != nullptr) {
    ports.http_api->SetDraining();
    ports.http->SetDraining();
  }
  const absl::Time deadline = absl::Now() + config.drain_timeout;
  static constexpr absl::Duration kSlice = absl::Milliseconds(50);  // how late a second signal may be noticed
  const auto slice = [deadline] { return std::min(deadline, absl::Now() + kSlice); };
  while (!frontend.WaitIdle(slice()) || (ports.main != nullptr && !ports.main->WaitStreamsSent(slice())) ||
         (ports.http != nullptr && !ports.http->WaitSent(slice()))) {
    if (signals.WaitFor(2, absl::InfinitePast())) return true;
    if (absl::Now() >= deadline) {
      spdlog::warn("drain timeout: {} requests are aborted, other streams may be unsent", frontend.num_live_requests());
      return false;
    }
  }
  return false;
}

// Where the file is wrong, the keys stay.
void ReloadKeys(const std::string& path, ApiKeyStore& keys) {
  absl::StatusOr<ApiKeys> loaded = ApiKeys::Load(path);
  if (!loaded.ok()) return spdlog::warn("the API keys stay as they are: {}", std::string(loaded.status().message()));
  spdlog::info("{} API keys are read", loaded->size());
  keys.Set(*std::move(loaded));
}

int Serve(const ServerConfig& config, Signals& signals) {
  std::unique_ptr<ApiKeyStore> keys;
  if (!config.api_key_file.empty()) {
    absl::StatusOr<ApiKeys> loaded = ApiKeys::Load(config.api_key_file);
    if (!loaded.ok()) return Refuse(loaded.status(), kExitConfig);
    keys = std::make_unique<ApiKeyStore>(*std::move(loaded));
  }
  Metrics metrics({config.model.served_model_names.front(), kVersion, config.vllm_metrics});
  const absl::StatusOr<Ports> ports = OpenPorts(config, metrics);
  if (!ports.ok()) return Refuse(ports.status(), ExitCodeOf(ports.status().code()));

  EngineOptions engine_options = config.engine;
  engine_options.on_schedule_trace_end = [](const std::string& problem) { spdlog::warn("{}", problem); };
  // Whoever starts the process again is the recovery: it drains, with each request failing, and exits.
  std::atomic<bool> device_failed = false;
  engine_options.on_device_failure = [&device_failed](const absl::Status& status) {
    spdlog::error("the device has failed, stopping: {}", std::string(status.message()));
    device_failed = true;
    kill(getpid(), SIGTERM);
  };
  if (config.check_only) engine_options.schedule_trace_path.clear();  // a file that is there stays
  absl::StatusOr<std::unique_ptr<Engine>> engine = CreateEngine(engine_options);
  if (!engine.ok()) return Refuse(engine.status(), ExitCodeOf(engine.status().code()));
  const std::string& tokenizer_path = config.model.tokenizer_path;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      LoadTokenizer(tokenizer_path.empty() ? config.engine.model_path : tokenizer_path);
  if (!tokenizer.ok()) return Refuse(tokenizer.status(), kExitModel);
  const absl::StatusOr<std::shared_ptr<const ChatFormat>> chat = ChatFormat::Load(
      {config.engine.model_path, tokenizer_path, config.model.chat_template_path}, config.model.chat, **tokenizer);
  if (!chat.ok()) return Refuse(chat.status(), kExitModel);
  if (config.check_only) return kExitOk;

  (*engine)->Start();
  FrontendOptions frontend_options = MakeFrontendOptions(config, keys.get(), metrics);
  frontend_options.chat = *chat;
  Frontend frontend(**engine, **tokenizer, std::move(frontend_options));
  const EngineInfo& info = (*engine)->info();
  LogEngine(info, config.engine.max_model_len);
  LogChat(**chat);
  signals.SetEarlyExit(nullptr);
  if (keys != nullptr) signals.SetHangup([&] { ReloadKeys(config.api_key_file, *keys); });
  ports->ForEach([&frontend](GrpcServer& server) { server.SetFrontend(&frontend); });
  if (ports->http != nullptr) ports->http_api->SetFrontend(&frontend);
  const std::string grpc = ports->main == nullptr ? "" : " grpc=" + ports->main->address();
  const std::string http = ports->http == nullptr ? "" : " http=" + ports->http->address();
  const std::string admin = ports->admin == nullptr ? "" : " admin=" + ports->admin->address();
  std::fprintf(stderr, "quired: ready%s%s model=%s device=%s kv_blocks=%d block_size=%d%s\n", grpc.c_str(),
               http.c_str(), config.model.served_model_names.front().c_str(),
               std::string(Name(config.engine.device)).c_str(), info.num_kv_blocks, info.block_size, admin.c_str());
  NotifySystemd("READY=1");

  signals.WaitFor(1, absl::InfiniteFuture());
  signals.SetHangup(nullptr);
  const bool at_once = Drain(config, signals, *ports, frontend);
  frontend.Stop();
  // Only statuses are still to be written; an idle connection shall not hold us.
  const absl::Time deadline = absl::Now() + (at_once ? absl::ZeroDuration() : absl::Seconds(1));
  ports->ForEach([deadline](GrpcServer& server) { server.Shutdown(deadline); });
  if (ports->http != nullptr) ports->http->Shutdown();
  spdlog::info("stopped");
  return device_failed ? kExitInternal : kExitOk;
}

int Main(int argc, char** argv) {
  int exit_code = kExitOk;
  const std::optional<ServerConfig> config = ParseServerConfig(argc, argv, &exit_code);
  if (!config) return exit_code;
  SetUpLogging(config->log_level, config->log_json);
  Signals signals;
  signals.SetEarlyExit([] { std::_Exit(kExitOk); });
  RaiseDescriptorLimit();
  return Serve(*config, signals);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) { return quire::Main(argc, argv); }
