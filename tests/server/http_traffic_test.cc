// Many clients of /v1/completions at once, slow ones, ones that go, ones without a key, on the simulated model.

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using ::quire::testing::HttpClient;
using ::quire::testing::HttpCompletionsTest;
using ::quire::testing::ParseSse;
using ::quire::testing::SseEvents;

TEST_F(HttpCompletionsTest, B158OpenStreamsHoldUpNobody) {
  Load();
  gate_.OpenUntil(2);
  std::vector<std::unique_ptr<HttpClient>> streams;
  const unsigned count = 3 * std::thread::hardware_concurrency() + 8;
  for (unsigned i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<HttpClient>(server_->address()));
    streams.back()->Send(HttpClient::PostText("/v1/completions", Request({{"stream", true}}).dump()));
  }
  HttpClient client(server_->address());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(client.Get("/health").status, 200);
    EXPECT_EQ(client.Get("/v1/models").status, 200);
  }
  client.Send(HttpClient::PostText("/v1/completions", Request().dump()));
  gate_.Open();
  EXPECT_EQ(client.Read().status, 200);
  for (const auto& stream : streams) EXPECT_TRUE(ParseSse(stream->Read().body).done);
}

class HttpQueueTest : public HttpCompletionsTest {
 protected:
  HttpQueueTest() : HttpCompletionsTest(Options()) {}
  static EngineOptions Options() {
    EngineOptions options;
    options.max_queued_requests = 8;
    options.scheduler.max_num_seqs = 4;
    return options;
  }
};

TEST_F(HttpQueueTest, B148EveryRequestBeyondTheLimitIsAnswered) {
  Load();
  gate_.OpenUntil(1);
  std::vector<std::unique_ptr<HttpClient>> taken;
  const auto send = [this] {
    auto client = std::make_unique<HttpClient>(server_->address());
    client->Send(HttpClient::PostText("/v1/completions", Request().dump()));
    return client;
  };
  taken.push_back(send());
  gate_.AwaitStep(1);  // it runs, and nothing else begins
  for (int i = 0; i < 8; ++i) taken.push_back(send());
  while (frontend_->GetEngineStats().requests_waiting < 8) std::this_thread::yield();
  std::vector<std::unique_ptr<HttpClient>> refused;
  for (int i = 0; i < 300; ++i) refused.push_back(send());
  for (const auto& client : refused) {
    const HttpClient::Reply reply = client->Read();
    EXPECT_EQ(reply.status, 429);
    EXPECT_EQ(reply.headers.count("retry-after"), 1u);
  }
  gate_.Open();
  for (const auto& client : taken) EXPECT_EQ(client->Read().status, 200);
  EXPECT_EQ(Complete({}).status, 200);
}

const ApiKeyStore& TestKeys() {
  const std::string path = ::testing::TempDir() + "quire_http_keys_" + std::to_string(getpid());
  std::ofstream(path) << "user-key team user\nadmin-key - admin\n";
  static const auto* const kKeys = new ApiKeyStore(*ApiKeys::Load(path));
  return *kKeys;
}

class HttpKeysTest : public HttpCompletionsTest {
 protected:
  HttpKeysTest() : HttpCompletionsTest({}, &TestKeys()) {}
};

TEST_F(HttpKeysTest, NobodyIsAnsweredWithoutAKey) {
  Load();
  HttpClient client(server_->address());
  for (const char* const path : {"/v1/models", "/metrics", "/version", "/openapi.json"}) {
    const HttpClient::Reply reply = client.Get(path);
    EXPECT_EQ(reply.status, 401) << path;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(reply.json()["error"]["type"], "AuthenticationError");
    EXPECT_EQ(client.Get(path, "Authorization: Bearer guess\r\n").status, 401);
    EXPECT_NE(client.Get(path, "Authorization: Bearer user-key\r\n").status, 401);
  }
  for (const char* const path : {"/health", "/ready"}) EXPECT_EQ(client.Get(path).status, 200) << path;
  EXPECT_EQ(Complete({}).status, 401);
  EXPECT_EQ(Complete({}, "Authorization: Basic dXNlci1rZXk=\r\n").status, 401);
  const std::string user = "Authorization: bearer user-key\r\n", admin = "Authorization: Bearer admin-key\r\n";
  EXPECT_EQ(Complete({}, user).status, 200);
  // A name too long for a tenant is refused where it counts: from an admin.
  const std::string tenant = "X-Tenant: " + std::string(5000, 't') + "\r\n";
  EXPECT_EQ(Complete({}, user + tenant).status, 200);
  EXPECT_EQ(Complete({}, admin + tenant).status, 400);
  EXPECT_GE(frontend_->tenants().Find("team"), 1);
}

TEST_F(HttpKeysTest, TheKeyIsAskedForBeforeTheBody) {
  Load();
  const auto status = [this](const std::string& head) {
    HttpClient client(server_->address());
    client.Send(head + "Host: h\r\nContent-Length: 60000000\r\n\r\n");
    return client.Read().status;
  };
  EXPECT_EQ(status("POST /v1/completions HTTP/1.1\r\n"), 401);
  EXPECT_EQ(status("POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer guess\r\n"), 401);
  // Nor does a path without keys, or none at all, take one.
  EXPECT_EQ(status("GET /health HTTP/1.1\r\n"), 413);
  EXPECT_EQ(status("POST /health HTTP/1.1\r\n"), 405);
  EXPECT_EQ(status("POST /nothing HTTP/1.1\r\n"), 404);
  EXPECT_EQ(status("OPTIONS /v1/completions HTTP/1.1\r\n"), 204);
}

TEST_F(HttpCompletionsTest, AClientThatGoesEndsItsRequests) {
  Load();
  gate_.OpenUntil(2);
  {
    HttpClient client(server_->address());
    client.Send(HttpClient::PostText("/v1/completions", Request({{"max_tokens", 400}, {"n", 3}}).dump()));
    gate_.AwaitStep(2);
  }
  ASSERT_TRUE(server_->WaitSent(absl::InfiniteFuture()));  // by its having gone: no step has ended
  gate_.Open();
  EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(frontend_->GetEngineStats().requests_aborted, 1);
}

TEST_F(HttpCompletionsTest, SilentStreamsSayThatTheyAreThere) {
  Load();
  gate_.OpenUntil(1);
  HttpClient client(server_->address());
  client.Send(HttpClient::PostText("/v1/completions", Request({{"stream", true}}).dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  std::string body, chunk;
  while (body.find(":") == std::string::npos && client.ReadChunk(&chunk)) body += chunk;
  gate_.Open();
  while (client.ReadChunk(&chunk)) body += chunk;
  const SseEvents events = ParseSse(body);
  EXPECT_GE(events.comments, 1);
  EXPECT_TRUE(events.done);
}

TEST_F(HttpCompletionsTest, ReadersThatDoNotKeepUpDelayNobody) {
  Load();
  HttpClient slow(server_->address(), /*receive_bytes=*/4096);
  slow.Send(HttpClient::PostText("/v1/completions", Request(json::parse(R"({"stream": true, "n": 64, "logprobs": 20,
      "max_tokens": 450, "stream_options": {"include_usage": true}})"))
                                                        .dump()));
  EXPECT_EQ(slow.ReadHead().status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Complete({}).status, 200);
  std::string body;
  for (std::string chunk; slow.ReadChunk(&chunk);) body += chunk;
  const SseEvents events = ParseSse(body);
  EXPECT_TRUE(events.done);
  EXPECT_EQ(events.objects.back()["usage"]["completion_tokens"], 64 * 450);
}

TEST_F(HttpCompletionsTest, ManyClientsComeAndGo) {
  Load();
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(c);
      for (int i = 0; i < 12; ++i) {
        HttpClient client(server_->address());
        const json request =
            Request({{"stream", random() % 2 == 0}, {"max_tokens", 1 + random() % 60}, {"n", 1 + random() % 3}});
        client.Send(HttpClient::PostText("/v1/completions", request.dump()));
        if (random() % 3 == 0) continue;
        answered += client.Read().status == 200;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 60);
  EXPECT_TRUE(frontend_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_TRUE(server_->WaitSent(absl::InfiniteFuture()));
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->GetStats().kv_blocks_active, 0);
  EXPECT_EQ(engine_->CheckInvariants(), absl::OkStatus());
}

}  // namespace
}  // namespace quire
