#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/http/http_message.h"

namespace quire {

struct HttpServerOptions {
  std::string listen;                    // "HOST:PORT"; port 0 picks a free one
  std::string option = "--http-listen";  // where that comes from, for errors
  int32_t num_threads = 2;               // that read and write; >= 1
  int64_t max_body_bytes = 64 << 20;     // of a POST, others have 64 KiB; beyond: 413
  int32_t max_header_bytes = 32 << 10;   // request line and headers; beyond: 431
  int32_t max_connections = 4096;        // beyond: 503 and close
  int32_t max_requests_per_connection = 100'000;
  absl::Duration idle_timeout = absl::Seconds(60);   // between requests, and for the head of one to come whole
  absl::Duration body_timeout = absl::Seconds(300);  // for a body to come whole
  absl::Duration stall_timeout = absl::Seconds(30);  // who takes nothing of an answer for so long is cut off
  // Origins whose pages may read answers (CORS); "*" is any. Without it no browser shows an answer to another page.
  std::vector<std::string> allowed_origins = {};
  std::function<void(int status)> on_answer = nullptr;  // of every answer that begins; any thread; may be empty
};

// HTTP/1.1 on one port: keep-alive, pipelining (one request at a time), chunked bodies, Expect: 100-continue, HEAD,
// CORS. Knows nothing of what is asked; the handler does. This header brings no Boost. Any thread.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // Shutdown at once

  // Opens the port. `handler`, which must outlive the server, gets each request but CORS preflights; those with bodies
  // above 256 KiB on a thread of their own, so that they hold up nobody while they are parsed. kFailedPrecondition for
  // an address that is none, kUnavailable if it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(HttpServerOptions options, HttpHandler& handler);

  // Connections close after the answer under way, idle ones at once; new ones are still answered.
  virtual void SetDraining() = 0;
  // Blocks until no answer is under way, or until `deadline`; true in the first case.
  virtual bool WaitSent(absl::Time deadline) = 0;
  // Refuses new connections, closes all, joins. Idempotent.
  virtual void Shutdown() = 0;

  virtual int32_t num_connections() const = 0;
  // Connections that were ended because their client did not read for `stall_timeout`.
  virtual int64_t num_stalled() const = 0;
  // Where it listens, with the port that was picked.
  virtual const std::string& address() const = 0;
};

}  // namespace quire
