#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http/parser.hpp"
#include "boost/beast/http/string_body.hpp"
#include "kernels/base/mutex.h"
#include "server/http/http_message.h"
#include "server/http/http_server.h"

namespace quire {

// What connections share; outlives them.
struct HttpShared {
  HttpShared(HttpServerOptions server_options, HttpHandler& request_handler)
      : options(std::move(server_options)), handler(request_handler) {}

  const HttpServerOptions options;
  HttpHandler& handler;
  boost::asio::thread_pool large_bodies{1};
  std::atomic<bool> draining = false;
  std::atomic<int32_t> num_connections = 0;
  std::atomic<int64_t> num_stalled = 0;

  Mutex mutex;
  int64_t num_exchanges ABSL_GUARDED_BY(mutex) = 0;  // requests handed over whose answer is not sent to its end
};

// One client: reads a request, hands it over, writes its answer, reads the next. What is refused by its head alone is
// answered without its body. While an answer is made it reads on,
// to notice that the client has gone and to keep what it sends ahead. Everything runs on the strand of its socket.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared& shared);
  ~HttpConnection();

  void Start();
  // Answers whatever comes with 503 and closes: there are too many connections.
  void Refuse();
  // Any thread: closes once nothing is under way; `at_once`: now.
  void Close(bool at_once);

 private:
  class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void ReadRequest();
  void OnHeader(boost::beast::error_code error);
  // What is answered without the body: CORS preflights and what the handler does not admit.
  std::optional<HttpResponse> AnswerHead();
  // Drops the body if all of it has come; false if it has not.
  bool SkipBody();
  void ReadBody();
  void OnBody(boost::beast::error_code error);
  void Handle();
  HttpResponse Preflight() const;
  // An answer that is whole, and the only one to this request.
  void Answer(const HttpResponse& response);
  // The request cannot be read: says so and closes.
  void RefuseRequest(int status, const std::string& message);
  void RefuseBody();  // it is too long
  // Reads on while an answer is made.
  void WatchClient();
  void OnClientBytes(boost::beast::error_code error, size_t count);
  void NoteGone();
  // The next request is under way, or that one no longer.
  void BeginAnswer();
  void EndAnswer();

  // Of the answer under way; `number` says to which request it belongs.
  void Send(int64_t number, std::string bytes, bool is_end);
  void WriteMore();
  void WatchStall();
  // Bytes under way that the client's system has not taken.
  int64_t UnsentBytes();
  void OnWritten(boost::beast::error_code error);
  void FinishAnswer();
  // Closes so that the client still gets what was sent: it may be sending itself.
  void Linger();
  void ReadAway(int64_t room);

  std::string Head(const HttpResponse& response, bool has_length, bool chunked);
  bool AllowsOrigin(std::string_view origin) const;
  HttpHeaders CorsHeaders() const;

  HttpShared& shared_;
  boost::beast::tcp_stream stream_;
  boost::asio::steady_timer body_timer_;   // of the body that is read
  boost::asio::steady_timer stall_timer_;  // of what is written
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::weak_ptr<HttpListener> listener_;
  HttpRequest request_;  // whose body is read

  int64_t number_ = 0;       // of the request under way
  bool answering_ = false;   // it has been handed over and is not answered to the end
  bool ended_ = false;       // its answer is all in outbox_ or beyond
  bool keep_alive_ = false;  // after it
  bool is_head_ = false, is_http10_ = false;
  bool reading_body_ = false, body_is_late_ = false;
  std::string origin_, request_id_;  // headers of the request under way; its id comes back with every answer
  bool watching_ = false, writing_ = false, gone_ = false, closed_ = false;
  std::string outbox_, sending_;
  size_t written_ = 0;        // of sending_, to the system
  int64_t unsent_bytes_ = 0;  // the least so far, of this write
};

}  // namespace quire
