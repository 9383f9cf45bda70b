#include "server/http/http_connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/asio/post.hpp"
#include "boost/asio/write.hpp"
#include "boost/beast/http/read.hpp"
#include "server/http/http_errors.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::beast::error_code;

constexpr size_t kLargeBodyBytes = 256 << 10;
constexpr size_t kFirstReadBytes = 4 << 10;   // of a connection: most requests whole
constexpr uint64_t kMaxOtherBody = 64 << 10;  // of requests but POST, whose bodies nobody reads
constexpr size_t kMaxEchoedId = 256;
constexpr char kRequestId[] = "X-Request-Id";
constexpr size_t kMaxReadAhead = 64 << 10;  // of what a client sends before its answer
// Behind the head of a request: sizes and extensions of chunks and fields behind the last one, which Beast does not
// limit.
constexpr size_t kMaxBetweenChunks = 128 << 10;
constexpr int64_t kMaxReadAway = int64_t{256} << 20;
constexpr std::chrono::seconds kLingerTime(5);

std::chrono::nanoseconds ToChrono(absl::Duration duration) { return absl::ToChronoNanoseconds(duration); }

std::string Text(beast::string_view text) { return {text.data(), text.size()}; }

std::string Lower(beast::string_view text) {
  std::string lower = Text(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The path of a request target, without scheme and host, query and percent signs.
std::string PathOf(beast::string_view target) {
  std::string raw = Text(target);
  raw = raw.substr(0, raw.find_first_of("?#"));
  if (const size_t scheme = raw.find("://"); scheme != std::string::npos && raw[0] != '/') {
    const size_t slash = raw.find('/', scheme + 3);
    raw = slash == std::string::npos ? "/" : raw.substr(slash);
  }
  std::string path;
  for (size_t i = 0; i < raw.size(); ++i) {
    const bool escaped = raw[i] == '%' && i + 2 < raw.size() && HexDigit(raw[i + 1]) >= 0 && HexDigit(raw[i + 2]) >= 0;
    path += escaped ? static_cast<char>(HexDigit(raw[i + 1]) * 16 + HexDigit(raw[i + 2])) : raw[i];
    if (escaped) i += 2;
  }
  return path;
}

// The bytes that came are no request, as opposed to a connection that ended or was too slow.
bool IsMalformed(error_code error) {
  return error && error.category() == http::make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

// What Beast lets through but two parties may read in two ways, which is how requests are smuggled past a proxy.
const char* ProblemOfHead(const http::request<http::string_body>& head) {
  const size_t codings = head.count(http::field::transfer_encoding);
  if (codings > 0 && head.count(http::field::content_length) > 0)
    return "Transfer-Encoding and Content-Length exclude each other";
  if (codings > 0 && head.version() < 11) return "HTTP/1.0 has no Transfer-Encoding";
  if (codings > 1 || (codings > 0 && Lower(head[http::field::transfer_encoding]) != "chunked"))
    return "Transfer-Encoding: only chunked is understood";
  if (head.count(http::field::host) > 1) return "Host: may stand there once";
  return nullptr;
}

std::string Reason(int status) { return Text(http::obsolete_reason(static_cast<http::status>(status))); }

}  // namespace

const std::string* HttpRequest::Find(std::string_view name) const {
  for (const auto& [known, value] : headers) {
    if (known == name) return &value;
  }
  return nullptr;
}

// --- Exchange

class HttpConnection::Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<HttpConnection> connection, int64_t number, HttpRequest request)
      : connection_(std::move(connection)), number_(number), request_(std::move(request)) {}
  ~Exchange() override {
    if (!ended_) Respond(ErrorResponse(absl::InternalError("no answer was made")));
  }

  HttpRequest& request() override { return request_; }
  void Respond(HttpResponse response) override {
    ended_ = true;
    Post([response = std::move(response)](HttpConnection& connection, int64_t number) {
      if (number == connection.number_) connection.Answer(response);
    });
  }
  void BeginStream(HttpResponse head) override {
    Post([head = std::move(head)](HttpConnection& connection, int64_t number) {
      // HTTP/1.0 has no chunks: there the end of the connection ends the body.
      if (connection.is_http10_) connection.keep_alive_ = false;
      connection.Send(number, connection.Head(head, /*has_length=*/false, !connection.is_http10_), /*is_end=*/false);
    });
  }
  void Write(std::string bytes) override {
    if (bytes.empty()) return;  // an empty chunk is the end
    Post([bytes = std::move(bytes)](HttpConnection& connection, int64_t number) {
      if (connection.is_http10_) return connection.Send(number, bytes, /*is_end=*/false);
      connection.Send(number, absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n"), /*is_end=*/false);
    });
  }
  void End() override {
    ended_ = true;
    Post([](HttpConnection& connection, int64_t number) {
      connection.Send(number, connection.is_http10_ ? "" : "0\r\n\r\n", /*is_end=*/true);
    });
  }
  void SetListener(std::weak_ptr<HttpListener> listener) override {
    Post([listener = std::move(listener)](HttpConnection& connection, int64_t number) {
      if (number != connection.number_) return;
      connection.listener_ = listener;
      if (!connection.gone_) return;
      if (const std::shared_ptr<HttpListener> heard = listener.lock()) heard->OnGone();
    });
  }

 private:
  template <typename Work>
  void Post(Work work) {
    asio::post(connection_->stream_.get_executor(),
               [connection = connection_, number = number_, work = std::move(work)] { work(*connection, number); });
  }

  const std::shared_ptr<HttpConnection> connection_;
  const int64_t number_;
  HttpRequest request_;
  std::atomic<bool> ended_ = false;
};

// --- reading

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpShared& shared)
    : shared_(shared),
      stream_(std::move(socket)),
      body_timer_(stream_.get_executor()),
      stall_timer_(stream_.get_executor()),
      buffer_(static_cast<size_t>(shared.options.max_header_bytes) + kMaxBetweenChunks) {
  buffer_.reserve(kFirstReadBytes);
  shared_.num_connections.fetch_add(1);
}

HttpConnection::~HttpConnection() {
  if (answering_) EndAnswer();
  shared_.num_connections.fetch_sub(1);
}

void HttpConnection::Start() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    error_code ignored;
    self->stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    self->ReadRequest();
  });
}

void HttpConnection::Refuse() {
  asio::post(stream_.get_executor(), [self = shared_from_this()] {
    self->RefuseRequest(503, absl::StrCat("too many connections; at most ", self->shared_.options.max_connections));
  });
}

void HttpConnection::Close(bool at_once) {
  asio::post(stream_.get_executor(), [self = shared_from_this(), at_once] {
    if (!at_once && self->answering_) return;  // Head says that it ends after the answer
    self->NoteGone();
    self->closed_ = true;
    self->stream_.close();
  });
}

void HttpConnection::ReadRequest() {
  if (closed_) return;
  if (shared_.draining) return Linger();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_.options.max_header_bytes));
  parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body_bytes));
  stream_.expires_after(ToChrono(shared_.options.idle_timeout));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, size_t) { self->OnHeader(error); });
}

void HttpConnection::OnHeader(error_code error) {
  const auto& head = parser_->get();
  origin_ = Text(head[http::field::origin]);  // a page may read refusals, too
  request_id_ = Text(head["x-request-id"].substr(0, kMaxEchoedId));
  if (error == http::error::header_limit) {
    return RefuseRequest(
        431, absl::StrCat("the head of the request is too long; at most ", shared_.options.max_header_bytes, " bytes"));
  }
  if (error == http::error::body_limit) return RefuseBody();
  if (IsMalformed(error)) return RefuseRequest(400, absl::StrCat("not an HTTP request: ", error.message()));
  if (error) return Linger();
  if (const char* const problem = ProblemOfHead(head)) return RefuseRequest(400, problem);
  request_ = {};
  request_.method = Text(head.method_string());
  request_.path = PathOf(head.target());
  // Now, since Beast adds what stands behind the last chunk, and that is no head: a proxy has not looked at it.
  for (const auto& field : head) request_.headers.emplace_back(Lower(field.name_string()), Text(field.value()));
  is_head_ = request_.method == "HEAD";
  is_http10_ = head.version() < 11;
  keep_alive_ = head.keep_alive() && number_ + 1 < shared_.options.max_requests_per_connection;
  bool is_expected = false;
  if (const auto expect = head.find(http::field::expect); expect != head.end() && head.version() >= 11) {
    if (Lower(expect->value()) != "100-continue") return RefuseRequest(417, "Expect: only 100-continue is understood");
    is_expected = !parser_->is_done();
  }
  if (const std::optional<HttpResponse> answer = AnswerHead()) {
    BeginAnswer();
    keep_alive_ = SkipBody() && keep_alive_;
    return Answer(*answer);
  }
  if (request_.method != "POST") {
    if (parser_->content_length().value_or(0) > kMaxOtherBody) return RefuseBody();
    parser_->body_limit(std::min(kMaxOtherBody, static_cast<uint64_t>(shared_.options.max_body_bytes)));
  }
  if (!is_expected) return ReadBody();
  static constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue, sizeof(kContinue) - 1),
                    [self = shared_from_this()](error_code written, size_t) {
                      if (written) return self->Linger();
                      self->ReadBody();
                    });
}

std::optional<HttpResponse> HttpConnection::AnswerHead() {
  if (request_.method == "OPTIONS" && request_.Find("access-control-request-method") != nullptr) return Preflight();
  return shared_.handler.Admit(request_);
}

bool HttpConnection::SkipBody() {
  if (parser_->is_done()) return true;
  const auto length = parser_->content_length();
  if (!length || *length > buffer_.size()) return false;
  buffer_.consume(static_cast<size_t>(*length));
  return true;
}

void HttpConnection::ReadBody() {
  // The stream's own clock closes it without a word, so it only comes second.
  stream_.expires_after(ToChrono(shared_.options.body_timeout) + kLingerTime);
  reading_body_ = true;
  body_timer_.expires_after(ToChrono(shared_.options.body_timeout));
  body_timer_.async_wait([self = shared_from_this()](error_code cancelled) {
    if (cancelled || !self->reading_body_) return;
    self->body_is_late_ = true;
    self->stream_.cancel();  // OnBody goes on
  });
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, size_t) { self->OnBody(error); });
}

void HttpConnection::OnBody(error_code error) {
  reading_body_ = false;
  body_timer_.cancel();
  if (error && body_is_late_) return RefuseRequest(408, "the body did not come in time");
  if (error == http::error::body_limit) return RefuseBody();
  if (IsMalformed(error)) return RefuseRequest(400, absl::StrCat("not an HTTP request: ", error.message()));
  if (error) return Linger();
  Handle();
}

void HttpConnection::Handle() {
  stream_.expires_never();
  request_.body = std::move(parser_->get().body());
  BeginAnswer();
  WatchClient();
  const bool is_large = request_.body.size() > kLargeBodyBytes;
  auto exchange = std::make_shared<Exchange>(shared_from_this(), number_, std::move(request_));
  if (!is_large) return shared_.handler.Handle(std::move(exchange));
  asio::post(shared_.large_bodies, [this, exchange = std::move(exchange)] { shared_.handler.Handle(exchange); });
}

HttpResponse HttpConnection::Preflight() const {
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  if (AllowsOrigin("*") || AllowsOrigin(origin_)) {
    response.headers = {{"Access-Control-Allow-Methods", "GET, POST, HEAD, OPTIONS"},
                        {"Access-Control-Max-Age", "600"}};
    // Whichever: clients in pages have headers of their own, and what we do not know changes nothing.
    if (const std::string* const wanted = request_.Find("access-control-request-headers"))
      response.headers.emplace_back("Access-Control-Allow-Headers", *wanted);
  }
  return response;
}

void HttpConnection::Answer(const HttpResponse& response) {
  std::string bytes = Head(response, /*has_length=*/true, /*chunked=*/false);
  if (!is_head_) bytes += response.body;
  Send(number_, std::move(bytes), /*is_end=*/true);
}

bool HttpConnection::AllowsOrigin(std::string_view origin) const {
  const std::vector<std::string>& allowed = shared_.options.allowed_origins;
  return std::find(allowed.begin(), allowed.end(), origin) != allowed.end();
}

HttpHeaders HttpConnection::CorsHeaders() const {
  if (shared_.options.allowed_origins.empty()) return {};
  const bool any = AllowsOrigin("*");
  HttpHeaders headers;
  if (!any) headers.emplace_back("Vary", "Origin");  // so that no cache gives one page the answer to another
  if (!origin_.empty() && (any || AllowsOrigin(origin_))) {
    headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : origin_);
    headers.emplace_back("Access-Control-Expose-Headers", "*");
  }
  return headers;
}

void HttpConnection::BeginAnswer() {
  ++number_;
  answering_ = true;
  ended_ = false;
  MutexLock lock(&shared_.mutex);
  ++shared_.num_exchanges;
}

void HttpConnection::EndAnswer() {
  answering_ = false;
  listener_.reset();
  MutexLock lock(&shared_.mutex);
  --shared_.num_exchanges;
}

void HttpConnection::RefuseRequest(int status, const std::string& message) {
  BeginAnswer();
  keep_alive_ = false;
  is_head_ = false;
  Answer(ErrorResponse(status, message));
}

void HttpConnection::RefuseBody() {
  RefuseRequest(413, absl::StrCat("the body is too long; at most ", shared_.options.max_body_bytes, " bytes"));
}

void HttpConnection::WatchClient() {
  if (watching_ || closed_ || gone_ || buffer_.size() >= kMaxReadAhead) return;
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(4096), [self = shared_from_this()](error_code error, size_t count) {
    self->OnClientBytes(error, count);
  });
}

void HttpConnection::OnClientBytes(error_code error, size_t count) {
  watching_ = false;
  buffer_.commit(count);
  if (error && error != asio::error::operation_aborted) NoteGone();
  if (answering_) {
    if (!error) WatchClient();
    return;
  }
  // The answer has gone meanwhile; the read was cancelled for the next request.
  if (gone_ || !keep_alive_) return Linger();
  ReadRequest();
}

void HttpConnection::NoteGone() {
  if (gone_) return;
  gone_ = true;
  if (const std::shared_ptr<HttpListener> listener = listener_.lock()) listener->OnGone();
}

// --- writing

std::string HttpConnection::Head(const HttpResponse& response, bool has_length, bool chunked) {
  if (shared_.options.on_answer) shared_.options.on_answer(response.status);
  if (shared_.draining) keep_alive_ = false;
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", Reason(response.status), "\r\n");
  const auto add = [&head](std::string_view name, std::string_view value) {
    head.append(name).append(": ").append(value).append("\r\n");
  };
  if (!response.content_type.empty()) add("Content-Type", response.content_type);
  if (has_length && response.status != 204) add("Content-Length", absl::StrCat(response.body.size()));
  if (chunked) add("Transfer-Encoding", "chunked");
  bool is_named = request_id_.empty();
  for (const auto& [name, value] : response.headers) {
    add(name, value);
    is_named |= name == kRequestId;
  }
  if (!is_named) add(kRequestId, request_id_);
  for (const auto& [name, value] : CorsHeaders()) add(name, value);
  add("Connection", keep_alive_ ? "keep-alive" : "close");
  head += "\r\n";
  return head;
}

void HttpConnection::Send(int64_t number, std::string bytes, bool is_end) {
  if (number != number_ || !answering_ || ended_) return;
  outbox_ += bytes;
  ended_ = is_end;
  if (!writing_) WriteMore();
}

void HttpConnection::WriteMore() {
  if (closed_) {
    outbox_.clear();
    if (ended_) FinishAnswer();
    return;
  }
  if (outbox_.empty()) {
    if (ended_) FinishAnswer();
    return;
  }
  writing_ = true;
  sending_.clear();
  std::swap(sending_, outbox_);
  written_ = 0;
  stream_.expires_never();
  unsent_bytes_ = UnsentBytes();
  WatchStall();
  const auto note = [this](error_code error, size_t written) {
    written_ = written;
    return asio::transfer_all()(error, written);
  };
  asio::async_write(stream_, asio::buffer(sending_), note,
                    [self = shared_from_this()](error_code error, size_t) { self->OnWritten(error); });
}

// The client's system tells what it has taken: how much of that waits in ours is no measure, as there is room for more
// only when a good part of it has gone.
void HttpConnection::WatchStall() {
  stall_timer_.expires_after(ToChrono(shared_.options.stall_timeout));
  stall_timer_.async_wait([self = shared_from_this()](error_code cancelled) {
    const bool is_old = self->stall_timer_.expiry() > asio::steady_timer::clock_type::now();  // it has been set again
    if (cancelled || is_old || !self->writing_) return;
    const int64_t unsent_bytes = self->UnsentBytes();
    if (unsent_bytes < self->unsent_bytes_) {
      self->unsent_bytes_ = unsent_bytes;
      return self->WatchStall();
    }
    self->shared_.num_stalled.fetch_add(1);
    self->stream_.close();  // OnWritten goes on
  });
}

int64_t HttpConnection::UnsentBytes() {
  int in_system = 0;
  if (ioctl(stream_.socket().native_handle(), SIOCOUTQ, &in_system) != 0) in_system = 0;
  return static_cast<int64_t>(sending_.size() - written_) + in_system;
}

void HttpConnection::OnWritten(error_code error) {
  writing_ = false;
  stall_timer_.cancel();
  if (error) {
    closed_ = true;
    stream_.close();
    NoteGone();
    return WriteMore();
  }
  if (!outbox_.empty() || ended_) return WriteMore();
  if (const std::shared_ptr<HttpListener> listener = listener_.lock()) listener->OnSent();
}

void HttpConnection::FinishAnswer() {
  EndAnswer();
  if (closed_) return;
  if (watching_) return stream_.cancel();  // OnClientBytes goes on
  if (gone_ || !keep_alive_) return Linger();
  ReadRequest();
}

void HttpConnection::Linger() {
  if (closed_) return;
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  stream_.expires_after(kLingerTime);
  ReadAway(kMaxReadAway);
}

void HttpConnection::ReadAway(int64_t room) {
  if (room <= 0) return stream_.close();
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(64 << 10), [self = shared_from_this(), room](error_code error, size_t count) {
    if (error) return self->stream_.close();
    self->ReadAway(room - static_cast<int64_t>(count));
  });
}

}  // namespace quire
