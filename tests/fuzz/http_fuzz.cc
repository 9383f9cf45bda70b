// Any bytes on a connection: they are answered in HTTP or the connection is closed, and the next client is served.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/base/check.h"
#include "server/http/http_server.h"

namespace quire {
namespace {

// Answers with what came, in pieces if it was a GET.
void Answer(const std::shared_ptr<HttpExchange>& exchange) {
  HttpResponse response;
  response.body = exchange->request().path + exchange->request().body;
  if (exchange->request().method != "GET") return exchange->Respond(std::move(response));
  exchange->BeginStream(std::move(response));
  exchange->Write("data: x\n\n");
  exchange->End();
}

HttpServer& Server() {
  static HttpServer* const server = [] {
    HttpServerOptions options;
    options.listen = "127.0.0.1:0";
    options.max_body_bytes = 1 << 16;
    options.max_requests_per_connection = 20;
    options.allowed_origins = {"http://a"};
    auto started = HttpServer::Start(options, &Answer);
    QUIRE_CHECK(started.ok());
    return started->release();
  }();
  return *server;
}

// Everything that the server sends to a client that sends `bytes` and nothing more.
std::string Ask(const uint8_t* data, size_t size) {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  QUIRE_CHECK(socket_fd >= 0);
  const std::string& address = Server().address();
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  QUIRE_CHECK(connect(socket_fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  for (size_t sent = 0; sent < size;) {
    const ssize_t count = send(socket_fd, data + sent, size - sent, MSG_NOSIGNAL);
    if (count <= 0) break;
    sent += static_cast<size_t>(count);
  }
  shutdown(socket_fd, SHUT_WR);
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
  const std::string answer = quire::Ask(data, size);
  QUIRE_CHECK(answer.empty() || answer.substr(0, 7) == "HTTP/1.");
  return 0;
}
