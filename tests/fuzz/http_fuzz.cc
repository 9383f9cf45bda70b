// Any bytes on a connection to the whole server over the simulated model: what comes back is HTTP, none of it is a
// failure of ours, and the next client is served. The first byte says whether the client closes its half at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "kernels/base/check.h"
#include "model/sim_runner.h"
#include "nlohmann/json.hpp"
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
    server.idle_timeout = server.body_timeout = absl::Milliseconds(5);  // who sends half a request waits no longer
    server.allowed_origins = {"http://a"};
    server.on_answer = [](int status) { QUIRE_CHECK(status != 500); };
    auto started = HttpServer::Start(server, api_);
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

// Takes the chunks of a body; false if they are cut off.
bool TakeChunks(std::string_view* rest) {
  while (true) {
    const size_t line = rest->find("\r\n");
    if (line == std::string_view::npos) return false;
    size_t size = 0;
    const auto [end, error] = std::from_chars(rest->data(), rest->data() + line, size, 16);
    QUIRE_CHECK(error == std::errc() && end == rest->data() + line);
    rest->remove_prefix(line + 2);
    if (rest->size() < size + 2) return false;
    QUIRE_CHECK(rest->substr(size, 2) == "\r\n");
    rest->remove_prefix(size + 2);
    if (size == 0) return true;
  }
}

// One answer behind the other, the last one maybe cut off: none to a HEAD, whose body is missing.
void CheckAnswers(std::string_view rest) {
  while (!rest.empty()) {
    QUIRE_CHECK(rest.substr(0, 9) == std::string_view("HTTP/1.1 ").substr(0, rest.size()));
    const size_t end = rest.find("\r\n\r\n");
    if (end == std::string_view::npos) return;
    const std::string_view head = rest.substr(0, end + 2);
    rest.remove_prefix(end + 4);
    const std::string_view status = head.substr(9, 3);
    if (status == "100" || status == "204") continue;
    if (head.find("\r\nTransfer-Encoding: chunked\r\n") != head.npos) {
      if (!TakeChunks(&rest)) return;
      continue;
    }
    constexpr std::string_view kLength = "\r\nContent-Length: ";
    const size_t length = head.find(kLength);
    if (length == head.npos) return;  // to a client of HTTP/1.0: until the end
    const size_t size = std::strtoul(head.data() + length + kLength.size(), nullptr, 10);
    if (size > rest.size()) return;
    if (head.find("\r\nContent-Type: application/json\r\n") != head.npos)
      QUIRE_CHECK(nlohmann::json::accept(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
}

// Everything that the server sends to a client that sends `bytes`.
std::string Ask(const std::string& bytes, bool closes_half) {
  static const Daemon* const daemon = new Daemon;
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  QUIRE_CHECK(socket_fd >= 0);
  const linger no_wait = {1, 0};  // ends by a reset: thousands a second would use up the ports
  setsockopt(socket_fd, SOL_SOCKET, SO_LINGER, &no_wait, sizeof no_wait);
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
  if (bytes.find("HEAD") == std::string::npos) quire::CheckAnswers(answer);
  return 0;
}
