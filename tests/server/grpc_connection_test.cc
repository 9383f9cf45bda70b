// What the port does with connections: limits on messages, pings in both directions.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/admin.grpc.pb.h"
#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;
using ::quire::testing::FixtureOptions;
using ::quire::testing::ServerFixture;
using ::quire::testing::SocketAddress;

// The least of an HTTP/2 client (RFC 9113): it sends its preface, acknowledges settings and shows every other frame.
class RawClient {
 public:
  static constexpr uint8_t kSettings = 4, kPing = 6, kGoAway = 7, kAck = 1;
  struct Frame {
    uint8_t type = 0, flags = 0;
    std::string payload;
  };

  // `address`: "unix:PATH".
  explicit RawClient(const std::string& address) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    address.copy(name.sun_path, sizeof(name.sun_path) - 1, std::strlen("unix:"));
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Send({kSettings, 0, ""});
  }
  ~RawClient() { close(fd_); }

  void Send(const Frame& frame) {
    const auto size = static_cast<uint8_t>(frame.payload.size());
    const char header[9] = {0, 0, static_cast<char>(size), static_cast<char>(frame.type),
                            static_cast<char>(frame.flags)};
    Write(std::string(header, sizeof(header)) + frame.payload);
  }
  // The next frame of a type; null once the server has closed the connection.
  std::optional<Frame> Await(uint8_t type) {
    while (std::optional<Frame> frame = Read()) {
      if (frame->type == type) return frame;
      if (frame->type == kGoAway) return std::nullopt;
      if (frame->type == kSettings && (frame->flags & kAck) == 0) Send({kSettings, kAck, ""});
    }
    return std::nullopt;
  }

 private:
  // A server that closes the connection meanwhile is seen when reading.
  void Write(const std::string& bytes) { (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  std::optional<Frame> Read() {
    std::string header;
    if (!Read(9, &header)) return std::nullopt;
    const auto byte = [&header](int i) { return static_cast<uint8_t>(header[i]); };
    Frame frame{byte(3), byte(4), ""};
    if (!Read(size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2), &frame.payload)) return std::nullopt;
    return frame;
  }
  bool Read(size_t size, std::string* bytes) {
    bytes->resize(size);
    return size == 0 || recv(fd_, bytes->data(), size, MSG_WAITALL) == static_cast<ssize_t>(size);
  }

  const int fd_;
};

class ConnectionTest : public ::testing::Test {
 protected:
  std::string Serve(const FixtureOptions& options) {
    fixture_ = std::make_unique<ServerFixture>(engine_, tokenizer_, "raw", options);
    return fixture_->server->address();
  }
  // Pings one after the other; how many were answered.
  static int Ping(RawClient& client, int count) {
    for (int i = 0; i < count; ++i) {
      client.Send({RawClient::kPing, 0, "12345678"});
      if (!client.Await(RawClient::kPing)) return i;
    }
    return count;
  }

  FakeEngine engine_;
  FakeTokenizer tokenizer_;
  std::unique_ptr<ServerFixture> fixture_;
};

TEST(PortsTest, AdministrationMayHaveAPortOfItsOwn) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  FixtureOptions options;
  options.server.serves_admin = false;
  const ServerFixture main(engine, tokenizer, "main_port", options);
  main.server->SetFrontend(main.frontend.get());
  options.server.serves_admin = true;
  options.server.serves_generation = false;
  options.server.option = "--admin-listen";
  options.server.listen = SocketAddress("admin_port");
  const auto admin = GrpcServer::Start(options.server);
  ASSERT_TRUE(admin.ok()) << admin.status();
  (*admin)->SetFrontend(main.frontend.get());

  const auto admin_channel = grpc::CreateChannel((*admin)->address(), grpc::InsecureChannelCredentials());
  const auto ask = [](const std::shared_ptr<grpc::Channel>& channel, bool of_admin) {
    grpc::ClientContext context;
    if (of_admin) {
      v1::ListPrefixesResponse response;
      return v1::Admin::NewStub(channel)->ListPrefixes(&context, {}, &response).error_code();
    }
    v1::GetStatsResponse response;
    return v1::Generation::NewStub(channel)->GetStats(&context, {}, &response).error_code();
  };
  EXPECT_EQ(ask(main.channel, /*of_admin=*/false), grpc::StatusCode::OK);
  EXPECT_EQ(ask(main.channel, /*of_admin=*/true), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ask(admin_channel, /*of_admin=*/false), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(ask(admin_channel, /*of_admin=*/true), grpc::StatusCode::OK);

  const auto health = [](const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
    return status.ok() ? grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status())
                       : status.error_message();
  };
  for (const auto& channel : {main.channel, admin_channel}) {
    const bool is_admin = channel == admin_channel;
    EXPECT_EQ(health(channel, ""), "SERVING");
    EXPECT_EQ(health(channel, "quire.v1.Admin") == "SERVING", is_admin);
    EXPECT_EQ(health(channel, "quire.v1.Generation") == "SERVING", !is_admin);
  }
  (*admin)->SetDraining();
  EXPECT_EQ(health(admin_channel, "quire.v1.Admin"), "NOT_SERVING");
  const auto second = GrpcServer::Start(options.server);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()).rfind("--admin-listen: ", 0), 0u) << second.status();
  (*admin)->Shutdown(absl::Now());
}

TEST_F(ConnectionTest, B152AClientWithoutCallsMayPingAsOftenAsTheIntervalAllows) {
  FixtureOptions options;
  options.server.min_ping_interval = absl::ZeroDuration();
  RawClient client(Serve(options));
  EXPECT_EQ(Ping(client, 50), 50);
}

TEST_F(ConnectionTest, AClientThatPingsWithoutPauseIsSentAway) {
  RawClient client(Serve(FixtureOptions()));
  EXPECT_LT(Ping(client, 1000), 1000);
}

TEST_F(ConnectionTest, AnIdleConnectionIsPingedAndGivenUpWithoutAnAnswer) {
  FixtureOptions options;
  options.server.keepalive_time = options.server.keepalive_timeout = absl::Milliseconds(50);
  RawClient client(Serve(options));
  for (int i = 0; i < 2; ++i) {
    const std::optional<RawClient::Frame> ping = client.Await(RawClient::kPing);
    ASSERT_TRUE(ping.has_value()) << i;
    EXPECT_EQ(ping->flags & RawClient::kAck, 0);
    client.Send({RawClient::kPing, RawClient::kAck, ping->payload});
  }
  ASSERT_TRUE(client.Await(RawClient::kPing).has_value());
  EXPECT_FALSE(client.Await(RawClient::kPing).has_value()) << "the unanswered ping ends the connection";
}

TEST(ConnectionOptionsTest, DefaultsSuitGatewaysAndDeadPeers) {
  const GrpcServerOptions options;
  EXPECT_EQ(options.keepalive_time, absl::Seconds(60));
  EXPECT_EQ(options.keepalive_timeout, absl::Seconds(20));
  EXPECT_EQ(options.min_ping_interval, absl::Milliseconds(500));
}

TEST_F(ConnectionTest, B153MessagesUpToSixtyFourMebibytesAreReceived) {
  Serve(FixtureOptions());
  fixture_->server->SetFrontend(fixture_->frontend.get());
  const auto send = [this](size_t bytes) {
    v1::GenerateRequest request;
    request.set_text(std::string(bytes, 'x'));
    v1::GenerateResponse response;
    grpc::ClientContext context;
    return fixture_->stub->Generate(&context, request, &response);
  };
  const grpc::Status read = send((64 << 20) - 1024);
  EXPECT_EQ(read.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << read.error_message();
  EXPECT_NE(read.error_message().find("text: 67107840 bytes are too long"), std::string::npos) << read.error_message();
  EXPECT_EQ(send((64 << 20) + 1).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::GetStatsResponse stats;
  grpc::ClientContext context;
  EXPECT_TRUE(fixture_->stub->GetStats(&context, {}, &stats).ok()) << "the connection goes on";
}

}  // namespace
}  // namespace quire
