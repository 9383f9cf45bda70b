#include "server/http/http_server.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/bind_executor.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/strand.hpp"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "server/http/http_connection.h"
#include "spdlog/spdlog.h"

namespace quire {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause(100);  // when the process has no descriptors left

// "HOST:PORT", "[V6]:PORT".
absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(const std::string& option, const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = colon == std::string::npos ? "" : listen.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  int number = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number < 0 || number > 65535) {
    return absl::FailedPreconditionError(
        absl::StrCat(option, ": '", listen, "' is not HOST:PORT with a port of 0 .. 65535"));
  }
  return std::make_pair(host, port);
}

class Server final : public HttpServer {
 public:
  Server(HttpServerOptions options, HttpHandler& handler) : shared_(std::move(options), handler) {}
  ~Server() override { Shutdown(); }

  absl::Status Open() {
    const HttpServerOptions& options = shared_.options;
    QUIRE_ASSIGN_OR_RETURN(const auto host_and_port, SplitAddress(options.option, options.listen));
    error_code error;
    asio::ip::tcp::resolver resolver(context_);
    const auto found =
        resolver.resolve(host_and_port.first, host_and_port.second, asio::ip::tcp::resolver::passive, error);
    if (error || found.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(options.option, ": '", host_and_port.first,
                                                        "' is no address of this machine: ", error.message()));
    }
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    const auto attempt = [&error](auto&& step) {
      if (!error) step();
    };
    attempt([&] { acceptor_.open(endpoint.protocol(), error); });
    attempt([&] { acceptor_.set_option(asio::socket_base::reuse_address(true), error); });
    attempt([&] { acceptor_.bind(endpoint, error); });
    attempt([&] { acceptor_.listen(asio::socket_base::max_listen_connections, error); });
    if (error) {
      return absl::UnavailableError(
          absl::StrCat(options.option, ": cannot listen on ", options.listen, ": ", error.message()));
    }
    address_ =
        absl::StrCat(options.listen.substr(0, options.listen.rfind(':')), ":", acceptor_.local_endpoint().port());
    Accept();
    for (int32_t i = 0; i < std::max(options.num_threads, 1); ++i) threads_.emplace_back([this] { context_.run(); });
    return absl::OkStatus();
  }

  void SetDraining() override {
    shared_.draining = true;
    ForEach([](HttpConnection& connection) { connection.Close(/*at_once=*/false); });
  }

  bool WaitSent(absl::Time deadline) override {
    const auto sent = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mutex) { return shared_.num_exchanges == 0; };
    MutexLock lock(&shared_.mutex);
    return shared_.mutex.AwaitWithDeadline(sent, deadline);
  }

  void Shutdown() override {
    std::lock_guard lock(shutdown_mutex_);
    if (stopped_) return;
    stopped_ = true;
    shared_.draining = true;
    asio::post(strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    ForEach([](HttpConnection& connection) { connection.Close(/*at_once=*/true); });
    shared_.large_bodies.join();
    context_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  int32_t num_connections() const override { return shared_.num_connections; }
  int64_t num_stalled() const override { return shared_.num_stalled; }
  const std::string& address() const override { return address_; }

 private:
  void Accept() {
    acceptor_.async_accept(asio::make_strand(context_),
                           asio::bind_executor(strand_, [this](error_code error, asio::ip::tcp::socket socket) {
                             OnAccept(error, std::move(socket));
                           }));
  }

  void OnAccept(error_code error, asio::ip::tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (error) {
      // Most likely out of descriptors: connections that end make room.
      spdlog::warn("cannot accept a connection: {}", error.message());
      pause_.expires_after(kAcceptPause);
      pause_.async_wait(asio::bind_executor(strand_, [this](error_code cancelled) {
        if (!cancelled) Accept();
      }));
      return;
    }
    const bool refused = shared_.num_connections >= shared_.options.max_connections;
    const auto connection = std::make_shared<HttpConnection>(std::move(socket), shared_);
    {
      MutexLock lock(&mutex_);
      if (connections_.size() > 2 * static_cast<size_t>(shared_.num_connections)) {
        std::erase_if(connections_, [](const std::weak_ptr<HttpConnection>& known) { return known.expired(); });
      }
      connections_.push_back(connection);
    }
    if (refused) {
      connection->Refuse();
    } else {
      connection->Start();
    }
    Accept();
  }

  template <typename Body>
  void ForEach(const Body& body) {
    std::vector<std::shared_ptr<HttpConnection>> live;
    {
      MutexLock lock(&mutex_);
      for (const std::weak_ptr<HttpConnection>& known : connections_) {
        if (std::shared_ptr<HttpConnection> connection = known.lock()) live.push_back(std::move(connection));
      }
    }
    for (const auto& connection : live) body(*connection);
  }

  HttpShared shared_;
  Mutex mutex_;
  std::vector<std::weak_ptr<HttpConnection>> connections_ ABSL_GUARDED_BY(mutex_);
  asio::io_context context_;
  asio::strand<asio::io_context::executor_type> strand_{context_.get_executor()};
  asio::ip::tcp::acceptor acceptor_{context_};
  asio::steady_timer pause_{context_};
  std::string address_;
  std::vector<std::thread> threads_;
  std::mutex shutdown_mutex_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options, HttpHandler& handler) {
  auto server = std::make_unique<Server>(std::move(options), handler);
  QUIRE_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace quire
