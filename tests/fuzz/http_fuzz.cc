// Any bytes on a connection to the whole server over the simulated model: what comes back is HTTP, none of it is a
// failure of ours, and the next client is served. The first byte says whether the client closes its half at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "model/sim_runner.h"
#include "scheduler/engine_with_runner.h"
#include "server/http/http_api.h"
#include "server/http/http_server.h"
#include "tests/server/chat_replies.h"

namespace quire {
namespace {

std::unique_ptr<Engine> StartEngine() {
  SimRunnerOptions sim;
  sim.config.vocab_size = testing::FakeTokenizer::kFirstPiece;
  sim.config.max_position_embeddings = 256;
  sim.num_kv_blocks = 129;
  sim.block_size = 16;
  sim.time_scale = 0;
  auto engine = CreateEngineWithRunner(EngineOptions(), sim.config, *CreateSimRunner(sim));
  QUIRE_CHECK(engine.ok());
  (*engine)->Start();
  return *std::move(engine);
}

// What lives as long as the process.
class Daemon {
 public:
  Daemon() : engine_(StartEngine()) {
    FrontendOptions options;
    options.served_model_names = {"sim"};
    options.seed = 1;
    options.chat = testing::MakeChatFormat(tokenizer_);
    frontend_ = std::make_unique<Frontend>(*engine_, tokenizer_, options);
    api_.SetFrontend(frontend_.get());
    HttpServerOptions server;
    server.listen = "127.0.0.1:0";
    server.max_body_bytes = 1 << 16;
    server.max_requests_per_connection = 20;
    server.idle_timeout = server.body_timeout = absl::Milliseconds(50);  // who sends half a request waits no longer
    server.allowed_origins = {"http://a"};
    server.on_answer = [](int status) { QUIRE_CHECK(status != 500); };
    auto started = HttpServer::Start(server, [this](const auto& exchange) { api_.Handle(exchange); });
    QUIRE_CHECK(started.ok());
    server_ = *std::move(started);
  }
  const std::string& address() const { return server_->address(); }

 private:
  testing::FakeTokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Frontend> frontend_;
  HttpApi api_{{.version = "1", .metrics = nullptr}};
  std::unique_ptr<HttpServer> server_;
};

// Everything that the server sends to a client that sends `bytes`.
std::string Ask(const std::string& bytes, bool closes_half) {
  static const Daemon* const daemon = new Daemon;
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  QUIRE_CHECK(socket_fd >= 0);
  const std::string& address = daemon->address();
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  QUIRE_CHECK(connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket_fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  if (closes_half) shutdown(socket_fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  for (ssize_t count; (count = recv(socket_fd, buffer, sizeof buffer, 0)) > 0;) answer.append(buffer, count);
  const linger reset = {1, 0};  // ports are few, and inputs many
  setsockopt(socket_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  close(socket_fd);
  return answer;
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool closes_half = data[0] % 2 == 1;
  // Ends the connection if the input has not done so.
  if (!closes_half) bytes += "GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
  const std::string answer = quire::Ask(bytes, closes_half);
  QUIRE_CHECK(answer.empty() || answer.starts_with("HTTP/1."));
  return 0;
}
