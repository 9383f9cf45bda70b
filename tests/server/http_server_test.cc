// HTTP itself, with a handler that knows nothing of models.

#include "server/http/http_server.h"

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/http/http_errors.h"
#include "tests/server/http_client.h"

namespace quire {
namespace {

using ::quire::testing::HttpClient;

// Answers /echo with the request, /wait when it is told to, and refuses /secret.
class HttpServerTest : public ::testing::Test, public HttpListener, public HttpHandler {
 protected:
  HttpServerTest() { options_.listen = "127.0.0.1:0"; }
  ~HttpServerTest() override {
    if (server_ != nullptr) server_->Shutdown();
  }

  void Start() {
    auto server = HttpServer::Start(options_, *this);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::optional<HttpResponse> Admit(HttpRequest& head) override {
    if (head.path != "/secret") return std::nullopt;
    return ErrorResponse(401, "not you");
  }
  void Handle(std::shared_ptr<HttpExchange> exchange) override {
    if (exchange->request().path == "/wait") {
      listener_ = std::shared_ptr<HttpListener>(this, [](HttpListener*) {});
      exchange->SetListener(listener_);
      waiting_ = std::move(exchange);
      has_waiting_.set_value();
      return;
    }
    if (exchange->request().path == "/forgotten") return;
    HttpResponse response;
    response.content_type = "text/plain";
    response.body = exchange->request().method + " " + exchange->request().path + " " + exchange->request().body;
    exchange->Respond(std::move(response));
  }
  void OnSent() override {}
  void OnGone() override { gone_.set_value(); }

  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
  std::shared_ptr<HttpListener> listener_;
  std::shared_ptr<HttpExchange> waiting_;
  std::promise<void> has_waiting_, gone_;
};

TEST_F(HttpServerTest, B159OneConnectionServesManyRequests) {
  Start();
  HttpClient client(server_->address());
  for (int i = 0; i < 200; ++i) {
    const HttpClient::Reply reply = client.Get("/echo");
    ASSERT_EQ(reply.status, 200);
    ASSERT_EQ(reply.body, "GET /echo ");
    ASSERT_EQ(reply.headers.at("connection"), "keep-alive");
  }
  EXPECT_EQ(server_->num_connections(), 1);
}

TEST_F(HttpServerTest, TheLastRequestOfAConnectionSaysSo) {
  options_.max_requests_per_connection = 3;
  Start();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/a").headers.at("connection"), "keep-alive");
  EXPECT_EQ(client.Get("/b").headers.at("connection"), "keep-alive");
  EXPECT_EQ(client.Get("/c").headers.at("connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, EveryAnswerHasTheIdOfItsRequest) {
  Start();
  HttpClient client(server_->address());
  client.Send("GET /x HTTP/1.1\r\nHost: h\r\nX-Request-Id: mine\r\n\r\n");
  EXPECT_EQ(client.Read().headers.at("x-request-id"), "mine");
  EXPECT_EQ(client.Get("/x").headers.count("x-request-id"), 0u);
  client.Send("GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\nX-Request-Id: " + std::string(300, 'i') + "\r\n\r\n");
  const HttpClient::Reply refused = client.Read();
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.headers.at("x-request-id"), std::string(256, 'i'));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  HttpClient client(server_->address());
  std::string all;
  for (int i = 0; i < 50; ++i) all += HttpClient::PostText("/n" + std::to_string(i), std::string(100, 'x'));
  std::thread sender([&] { client.Send(all); });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.Read().body, "POST /n" + std::to_string(i) + " " + std::string(100, 'x'));
  }
  sender.join();
}

TEST_F(HttpServerTest, BodiesComeInChunksAndAfterAContinue) {
  Start();
  HttpClient client(server_->address());
  client.Send(
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: v\r\n\r\n");
  EXPECT_EQ(client.Read().body, "POST /c abcde");
  client.Send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(client.Read().status, 100);
  client.Send("late");
  EXPECT_EQ(client.Read().body, "POST /e late");
  // Who does not wait for it gets it all the same.
  client.Send("POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nsoon");
  HttpClient::Reply reply = client.Read();
  if (reply.status == 100) reply = client.Read();
  EXPECT_EQ(reply.body, "POST /e soon");
}

TEST_F(HttpServerTest, PathsLoseQueryHostAndPercentSigns) {
  Start();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/a%20b%2fc?x=%41#y").body, "GET /a b/c ");
  EXPECT_EQ(client.Get("http://h:1/a").body, "GET /a ");
  EXPECT_EQ(client.Get("/50%").body, "GET /50% ");
}

TEST_F(HttpServerTest, HeadHasTheHeadOnly) {
  Start();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/x", "", "HEAD").headers.at("content-length"), "8");
  EXPECT_EQ(client.Get("/x").body, "GET /x ");  // nothing was left over
}

TEST_F(HttpServerTest, OldClientsGetNoChunks) {
  Start();
  HttpClient client(server_->address());
  client.Send("GET /wait HTTP/1.0\r\n\r\n");
  has_waiting_.get_future().wait();
  waiting_->BeginStream({});
  waiting_->Write("one");
  waiting_->Write("two");
  waiting_->End();
  const HttpClient::Reply reply = client.Read();
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(reply.body, "onetwo");
  waiting_.reset();
}

TEST_F(HttpServerTest, B197ABodyOverTheLimitIsRefusedUnread) {
  options_.max_body_bytes = 1000;
  Start();
  HttpClient client(server_->address());
  client.Send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  const HttpClient::Reply declared = client.Read();
  EXPECT_EQ(declared.status, 413);
  EXPECT_EQ(declared.json()["error"]["message"], "the body is too long; at most 1000 bytes");
  client.Send(std::string(1001, 'x'));
  EXPECT_TRUE(client.AtEnd());
  HttpClient chunks(server_->address());
  chunks.Send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) chunks.Send("64\r\n" + std::string(100, 'x') + "\r\n");
  EXPECT_EQ(chunks.Read().status, 413);
  HttpClient exact(server_->address());
  exact.Send(HttpClient::PostText("/x", std::string(1000, 'x')));
  EXPECT_EQ(exact.Read().status, 200);
}

// Nothing of these bodies is ever sent: who has no key costs no memory.
TEST_F(HttpServerTest, WhoIsNotAdmittedIsAnsweredBeforeTheBody) {
  Start();
  for (const std::string fields : {"Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n",
                                   "Expect: 100-continue\r\nContent-Length: 1000000\r\n"}) {
    HttpClient client(server_->address());
    client.Send("POST /secret HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n");
    const HttpClient::Reply reply = client.Read();
    EXPECT_EQ(reply.status, 401) << fields;
    EXPECT_EQ(reply.headers.at("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
  // A body that came with its head is dropped, and the connection goes on.
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/secret").status, 401);
  client.Send(HttpClient::PostText("/secret", "{}") + HttpClient::PostText("/x", "{}"));
  EXPECT_EQ(client.Read().headers.at("connection"), "keep-alive");
  EXPECT_EQ(client.Read().body, "POST /x {}");
  EXPECT_EQ(client.Get("/secret", "", "HEAD").status, 401);
  EXPECT_EQ(client.Get("/x").body, "GET /x ");
}

TEST_F(HttpServerTest, OnlyPostHasLongBodies) {
  Start();
  HttpClient client(server_->address());
  client.Send("GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(client.Read().body, "GET /x abc");
  client.Send("GET /x HTTP/1.1\r\nHost: h\r\nContent-Length: 65537\r\n\r\n");
  EXPECT_EQ(client.Read().status, 413);
  HttpClient chunks(server_->address());
  chunks.Send("GET /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10001\r\n");
  EXPECT_EQ(chunks.Read().status, 413);
  HttpClient preflight(server_->address());
  preflight.Send("OPTIONS /x HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: POST\r\nContent-Length: 9\r\n\r\n");
  EXPECT_EQ(preflight.Read().status, 204);
  EXPECT_TRUE(preflight.AtEnd());
}

TEST_F(HttpServerTest, WhatIsNoRequestIsRefused) {
  options_.max_header_bytes = 1000;
  Start();
  const auto status = [this](const std::string& bytes) {
    HttpClient client(server_->address());
    client.Send(bytes);
    client.ShutdownWrite();
    return client.Read().status;
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(2000, 'x') + "\r\n\r\n"), 431);
  EXPECT_EQ(status("hello\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/9.9\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"), 400);
  // Two lengths are how requests are smuggled past a proxy.
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.1\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nExpect: miracles\r\n\r\n"), 417);
  EXPECT_EQ(status(""), 0);
  EXPECT_EQ(status("GET / HT"), 0);
}

// Neither an extension of a chunk nor what follows the last one may fill the memory.
TEST_F(HttpServerTest, WhatStandsBetweenChunksIsBounded) {
  Start();
  const std::string endless(1 << 20, 'x');
  for (const std::string before : {"1;", "0\r\nT: "}) {
    HttpClient client(server_->address());
    client.Send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + before);
    std::thread sender([&] { client.Send(endless); });
    EXPECT_EQ(client.Read().status, 400) << before;
    sender.join();
  }
}

TEST_F(HttpServerTest, FieldsBehindTheBodyAreNoHeaders) {
  Start();
  HttpClient client(server_->address());
  client.Send(
      "POST /wait HTTP/1.1\r\nHost: h\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Tenant: t\r\n\r\n");
  has_waiting_.get_future().wait();
  EXPECT_EQ(waiting_->request().body, "x");
  EXPECT_EQ(*waiting_->request().Find("a"), "1");
  EXPECT_EQ(waiting_->request().Find("x-tenant"), nullptr);
  waiting_->Respond({});
  EXPECT_EQ(client.Read().status, 200);
  waiting_.reset();
}

TEST_F(HttpServerTest, ABodyThatDoesNotComeIsRefused) {
  options_.body_timeout = absl::Milliseconds(20);
  Start();
  HttpClient client(server_->address());
  client.Send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nha");
  EXPECT_EQ(client.Read().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerTest, OldClientsAreNotToldToContinue) {
  Start();
  HttpClient client(server_->address());
  client.Send("POST /e HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_EQ(client.Read().body, "POST /e x");
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreTurnedAway) {
  options_.max_connections = 2;
  Start();
  HttpClient first(server_->address()), second(server_->address());
  EXPECT_EQ(first.Get("/x").status, 200);
  EXPECT_EQ(second.Get("/x").status, 200);
  HttpClient third(server_->address());
  EXPECT_EQ(third.Read().status, 503);
  EXPECT_TRUE(third.AtEnd());
  EXPECT_EQ(first.Get("/x").status, 200);
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticed) {
  Start();
  HttpClient client(server_->address());
  client.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  has_waiting_.get_future().wait();
  client.Close();
  gone_.get_future().wait();
  waiting_->Respond({});
  waiting_.reset();
  EXPECT_TRUE(server_->WaitSent(absl::InfiniteFuture()));
}

TEST_F(HttpServerTest, AClientThatReadsNothingIsCutOff) {
  options_.stall_timeout = absl::Milliseconds(20);
  Start();
  HttpClient client(server_->address(), /*receive_bytes=*/4096);
  client.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  has_waiting_.get_future().wait();
  HttpResponse response;
  response.body = std::string(size_t{64} << 20, 'x');
  waiting_->Respond(std::move(response));
  gone_.get_future().wait();
  EXPECT_TRUE(server_->WaitSent(absl::InfiniteFuture()));
  EXPECT_EQ(server_->num_stalled(), 1);
  waiting_.reset();
}

// The answer takes longer than the timeout, but never so long without a byte of it.
TEST_F(HttpServerTest, AClientThatReadsSlowlyIsNot) {
  options_.stall_timeout = absl::Seconds(1);
  Start();
  HttpClient client(server_->address(), /*receive_bytes=*/4096);
  client.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  has_waiting_.get_future().wait();
  HttpResponse response;
  response.body = std::string(size_t{64} << 20, 'x');
  waiting_->Respond(std::move(response));
  const absl::Time end = absl::Now() + 2 * options_.stall_timeout;
  while (absl::Now() < end) ASSERT_TRUE(client.ReadByte());
  EXPECT_EQ(server_->num_stalled(), 0);
  client.Close();
  gone_.get_future().wait();
  EXPECT_TRUE(server_->WaitSent(absl::InfiniteFuture()));
  EXPECT_EQ(server_->num_stalled(), 0);
  waiting_.reset();
}

TEST_F(HttpServerTest, AForgottenRequestIsAnInternalError) {
  Start();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/forgotten").status, 500);
  EXPECT_EQ(client.Get("/x").status, 200);
}

TEST_F(HttpServerTest, DrainingClosesBehindTheAnswerUnderWay) {
  Start();
  HttpClient idle(server_->address()), busy(server_->address());
  EXPECT_EQ(idle.Get("/x").status, 200);
  busy.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  has_waiting_.get_future().wait();
  server_->SetDraining();
  EXPECT_TRUE(idle.AtEnd());
  EXPECT_FALSE(server_->WaitSent(absl::InfinitePast()));
  waiting_->Respond({});
  EXPECT_EQ(busy.Read().headers.at("connection"), "close");
  EXPECT_TRUE(busy.AtEnd());
  waiting_.reset();
  EXPECT_TRUE(server_->WaitSent(absl::InfiniteFuture()));
}

TEST_F(HttpServerTest, PagesOfOtherOriginsReadAnswersOnlyIfAllowed) {
  Start();
  HttpClient closed(server_->address());
  EXPECT_EQ(closed.Get("/x", "Origin: https://a.example\r\n").headers.count("access-control-allow-origin"), 0u);
  server_->Shutdown();
  options_.allowed_origins = {"https://a.example"};
  Start();
  HttpClient client(server_->address());
  EXPECT_EQ(client.Get("/x", "Origin: https://a.example\r\n").headers.at("access-control-allow-origin"),
            "https://a.example");
  HttpClient::Reply other = client.Get("/x", "Origin: https://b.example\r\n");
  EXPECT_EQ(other.headers.count("access-control-allow-origin"), 0u);
  EXPECT_EQ(other.headers.at("vary"), "Origin");  // a cache must not give it to the first page
  HttpClient::Reply preflight = client.Get("/x",
                                           "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n"
                                           "Access-Control-Request-Headers: x-stainless-os, x-request-timeout-ms\r\n",
                                           "OPTIONS");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_NE(preflight.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "x-stainless-os, x-request-timeout-ms");
  EXPECT_EQ(preflight.headers.count("content-length"), 0u);
  // A refusal of what cannot be read goes by its own origin.
  client.Send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\nOrigin: https://a.example\r\n\r\n");
  const HttpClient::Reply refused = client.Read();
  EXPECT_EQ(refused.status, 413);
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "https://a.example");
}

TEST_F(HttpServerTest, AddressesAreChecked) {
  for (const char* const listen : {"", "x", ":1", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x"}) {
    EXPECT_EQ(HttpServer::Start({.listen = listen}, *this).status().code(), absl::StatusCode::kFailedPrecondition)
        << listen;
  }
  Start();
  EXPECT_EQ(HttpServer::Start({.listen = server_->address()}, *this).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace quire
