#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace grpc {
class Server;
}

namespace quire {

class Frontend;
class AdminService;
class GenerationService;

struct GrpcServerOptions {
  std::string listen;                    // "HOST:PORT", port 0 picks a free one, or "unix:PATH"
  std::string option = "--grpc-listen";  // where that comes from, for errors
  bool serves_generation = true, serves_admin = true;
  bool serves_reflection = true;  // to everybody, so not where keys are needed. All servers of a process agree
  absl::Duration stall_timeout = absl::Seconds(30);  // a write that lasts longer cancels its call
  // A connection that says nothing for so long is pinged, and given up unless it answers.
  absl::Duration keepalive_time = absl::Seconds(60), keepalive_timeout = absl::Seconds(20);
  // Clients that ping more often are sent away. Gateways ping idle connections every 10 to 30 s, some clients each
  // second; a ping costs nothing.
  absl::Duration min_ping_interval = absl::Milliseconds(500);
  int64_t max_message_bytes = 64 << 20;  // that a client may send; at most 2 GiB
  std::string version;
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0;  // for GetModelInfo
  std::function<void(int code)> on_status = nullptr;     // of every call that ends; any thread; may be empty
};

// A gRPC port: quire.v1.Generation and Admin or one of them, grpc.health.v1.Health (for "" and these services),
// reflection. This header brings no gRPC header. Any thread.
class GrpcServer {
 public:
  // Opens the port; everything is NOT_SERVING and UNAVAILABLE until SetFrontend. kFailedPrecondition for an address
  // that is none, kUnavailable if it cannot be listened on, as when another process does.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options);
  ~GrpcServer();  // Shutdown at once

  // The model is loaded: requests go to `frontend`, which must outlive Shutdown; health follows its engine.
  void SetFrontend(Frontend* frontend);
  // Health is NOT_SERVING from now on, whatever the engine says.
  void SetDraining();
  // Blocks until all accepted calls have been sent to their end, or until `deadline`; true in the first case. A
  // client that does not read is cancelled after stall_timeout as ever.
  bool WaitStreamsSent(absl::Time deadline);
  // Refuses new connections, waits for calls under way until `deadline`, cancels the rest, ends. Idempotent.
  void Shutdown(absl::Time deadline);

  // Where it listens, with the port that was picked.
  const std::string& address() const { return address_; }

 private:
  explicit GrpcServer(GrpcServerOptions options);
  absl::Status Open();
  std::vector<const char*> HealthNames() const;
  // Looks after health and stalled streams until Shutdown.
  void Watch();
  void SetHealth(bool serving);
  void UpdateHealth() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GrpcServerOptions options_;
  std::string address_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<AdminService> admin_;
  std::unique_ptr<grpc::Server> server_;
  std::thread watcher_;

  absl::Mutex mutex_;
  Frontend* frontend_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
