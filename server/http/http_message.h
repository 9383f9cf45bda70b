#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// One request as it came, its body whole and of bounded size. Nothing of it is checked beyond HTTP's own grammar.
struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // percent-decoded, without the query
  HttpHeaders headers;  // names in lower case
  std::string body;

  // The value of the first header of that name (lower case), or null.
  const std::string* Find(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no body
  // Beside Content-Type, Content-Length, Connection; without X-Request-Id that of the request comes back.
  HttpHeaders headers;
  std::string body;
};

// Hears of the client while an answer is made. Called on a thread of the server, one call at a time; must not block.
class HttpListener {
 public:
  virtual ~HttpListener() = default;
  // All that was given to the exchange is with the system: there is room for more.
  virtual void OnSent() = 0;
  // The client has closed its connection or does not read; nothing more reaches it.
  virtual void OnGone() = 0;
};

// One request and the way its answer goes. Exactly one of Respond, or BeginStream and later End, is called, once, on
// any thread; none blocks. What is given after the client has gone is dropped.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual HttpRequest& request() = 0;  // the handler's to move from
  virtual void Respond(HttpResponse response) = 0;
  // The head of `head`; its body is ignored. The body comes in pieces, as long as no End.
  virtual void BeginStream(HttpResponse head) = 0;
  virtual void Write(std::string bytes) = 0;
  virtual void End() = 0;
  // At most once, before anything is written. The exchange does not keep it alive.
  virtual void SetListener(std::weak_ptr<HttpListener> listener) = 0;
};

// What answers requests. Called on threads of the server, several at a time; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Of every request, when its head has come and before its body is read; `head` has no body yet and may be changed. An
  // answer is sent at once, and the request is over; without one Handle gets it when its body has come.
  virtual std::optional<HttpResponse> Admit(HttpRequest& head) = 0;
  virtual void Handle(std::shared_ptr<HttpExchange> exchange) = 0;
};

}  // namespace quire
