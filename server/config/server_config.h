#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/engine_options.h"
#include "server/config/engine_flags.h"

namespace quire {

inline constexpr char kVersion[] = "0.1.0";

// Everything quired can be told, each value once. Command line > environment (QUIRE_MAX_NUM_SEQS) > file of --config
// (TOML) > default.
struct ServerConfig {
  EngineOptions engine;
  ModelFlags model;
  std::string grpc_listen = "127.0.0.1:50051";  // HOST:PORT or unix:PATH
  std::string http_listen = "127.0.0.1:8000";   // HOST:PORT; empty: no HTTP
  int64_t max_request_bytes = 64 << 20;         // a body over HTTP, a message over gRPC
  int32_t max_connections = 4096;               // over HTTP
  absl::Duration http_idle_timeout = absl::Seconds(60);
  std::string api_key_file;  // keys that callers must show; empty: none
  bool metrics_without_key = false;
  bool vllm_metrics = true;                          // --metrics-compat vllm: /metrics has vLLM's names, too
  std::vector<std::string> allowed_origins;          // of pages that may read answers over HTTP (CORS)
  std::string admin_listen;                          // the same, for quire.v1.Admin alone; empty: with gRPC
  absl::Duration drain_timeout = absl::Seconds(30);  // from SIGTERM to aborting what still runs
  absl::Duration lame_duck = absl::ZeroDuration();   // after SIGTERM: not ready but still accepting
  absl::Duration stall_timeout = absl::Seconds(30);  // a client that reads nothing for so long is cancelled
  int64_t fork_memory_tokens = 1 << 20;              // of finished requests that Fork can name, 4 bytes each
  std::string log_level = "info";                    // trace, debug, info, warn, error, off
  bool log_json = false;
  bool check_only = false;  // --check-config
};

// Parses a command line. On success the configuration is complete and in range. Otherwise, and for --help, --version
// and --print-config, what there is to say has been printed and *exit_code is set: 0, 64 or 78.
std::optional<ServerConfig> ParseServerConfig(int argc, const char* const* argv, int* exit_code);

}  // namespace quire
