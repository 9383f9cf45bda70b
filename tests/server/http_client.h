#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace quire::testing {

// A client over a plain blocking socket, so that tests say byte for byte what is sent.
class HttpClient {
 public:
  struct Reply {
    int status = 0;                              // 0: the connection ended before a whole answer
    std::map<std::string, std::string> headers;  // names in lower case
    std::string body;
    nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  };

  // `address`: "127.0.0.1:PORT". A small receive buffer for clients that shall fall behind.
  explicit HttpClient(const std::string& address, int receive_bytes = 0) {
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const timeval patience = {60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  HttpClient(const HttpClient&) = delete;
  ~HttpClient() { Close(); }

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  void ShutdownWrite() { shutdown(socket_, SHUT_WR); }
  // False once the server has closed.
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }

  Reply Get(const std::string& path, const std::string& headers = "", const std::string& method = "GET") {
    Send(method + " " + path + " HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n");
    return Read(method == "HEAD");
  }
  Reply Post(const std::string& path, const nlohmann::json& body, const std::string& headers = "") {
    Send(PostText(path, body.dump(), headers));
    return Read();
  }
  static std::string PostText(const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n" + headers + "\r\n" + body;
  }

  // The next answer.
  Reply Read(bool is_head = false) {
    Reply reply = ReadHead();
    if (reply.status == 0 || is_head || reply.status == 204 || reply.status == 100) return reply;
    if (reply.headers.count("transfer-encoding") > 0) {
      for (std::string chunk; ReadChunk(&chunk);) reply.body += chunk;
    } else if (const auto length = reply.headers.find("content-length"); length != reply.headers.end()) {
      reply.body = Take(std::stoul(length->second));
    } else {
      while (Fill()) continue;
      reply.body = std::exchange(buffer_, "");
    }
    return reply;
  }
  // Status line and headers; the body follows.
  Reply ReadHead() {
    Reply reply;
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return reply;
    }
    const std::string head = Take(end + 4);
    reply.status = std::atoi(head.substr(head.find(' ') + 1).c_str());
    for (size_t line = head.find("\r\n") + 2; line + 2 < head.size();) {
      const size_t next = head.find("\r\n", line), colon = head.find(": ", line);
      if (next == line) break;
      std::string name = head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.headers[name] = head.substr(colon + 2, next - colon - 2);
      line = next + 2;
    }
    return reply;
  }
  // False at the end of the body, or of the connection.
  bool ReadChunk(std::string* chunk) {
    size_t end;
    while ((end = buffer_.find("\r\n")) == std::string::npos) {
      if (!Fill()) return false;
    }
    const size_t size = std::stoul(Take(end + 2), nullptr, 16);
    *chunk = Take(size);
    Take(2);
    return size > 0;
  }
  // Takes one byte from the system; false at the end.
  bool ReadByte() {
    char byte;
    if (recv(socket_, &byte, 1, 0) <= 0) return false;
    buffer_ += byte;
    return true;
  }
  // Whether the server has closed and sent nothing more.
  bool AtEnd() { return buffer_.empty() && !Fill(); }

 private:
  bool Fill() {
    char bytes[65536];
    const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }
  std::string Take(size_t count) {
    while (buffer_.size() < count && Fill()) continue;
    std::string taken = buffer_.substr(0, count);
    buffer_.erase(0, count);
    return taken;
  }

  int socket_ = -1;
  std::string buffer_;
};

// The objects of a stream of events; "[DONE]" and comments are left out and noted.
struct SseEvents {
  std::vector<nlohmann::json> objects;
  bool done = false;
  int comments = 0;
};
inline SseEvents ParseSse(const std::string& body) {
  SseEvents events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event does not end: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event[0] == ':') {
      ++events.comments;
    } else if (event == "data: [DONE]") {
      events.done = true;
      EXPECT_EQ(at, body.size()) << "something follows [DONE]";
    } else {
      EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
      events.objects.push_back(nlohmann::json::parse(event.substr(6)));
    }
  }
  return events;
}

}  // namespace quire::testing
