#pragma once

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "quire/v1/generation.grpc.pb.h"
#include "server/frontend/frontend.h"
#include "server/grpc/grpc_server.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/fake_tokenizer.h"

// What the tests of server/grpc share: a server over an engine, on a socket of its own, and a client of it.
namespace quire::testing {

inline std::string SocketAddress(const std::string& name) {
  return absl::StrCat("unix:", ::testing::TempDir(), "quire_", getpid(), "_", name);
}

template <typename Detail>
bool GetDetail(const grpc::Status& status, Detail* detail) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return false;
  for (const auto& any : details.details()) {
    if (any.UnpackTo(detail)) return true;
  }
  return false;
}

inline v1::GenerateRequest TextRequest(const std::string& id = "") {
  v1::GenerateRequest request;
  request.set_request_id(id);
  request.set_text("p");
  return request;
}

struct FixtureOptions {
  FixtureOptions() {
    server.stall_timeout = absl::Hours(1);
    frontend.served_model_names = {"fake"};
    frontend.max_logprobs = -1;
    frontend.duplicate_wait = absl::ZeroDuration();
  }
  GrpcServerOptions server;  // but for `listen`
  FrontendOptions frontend;
};

// A server over an engine, and a client of it.
class ServerFixture {
 public:
  ServerFixture(Engine& engine, const Tokenizer& tokenizer, const std::string& name, FixtureOptions options = {}) {
    frontend = std::make_unique<Frontend>(engine, tokenizer, options.frontend);
    options.server.listen = SocketAddress(name);
    auto started = GrpcServer::Start(options.server);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    channel = NewChannel();
    stub = v1::Generation::NewStub(channel);
  }
  ~ServerFixture() {
    frontend->Stop();
    server->Shutdown(absl::Now() + absl::Seconds(5));
  }

  // One with a connection of its own. `small_window`: takes no more than 64 KiB ahead of what the caller reads.
  std::shared_ptr<grpc::Channel> NewChannel(bool small_window = false) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (small_window) {
      args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
      args.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
    }
    return grpc::CreateCustomChannel(server->address(), grpc::InsecureChannelCredentials(), args);
  }

  std::unique_ptr<Frontend> frontend;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Generation::Stub> stub;
};

class GrpcTest : public ::testing::Test {
 protected:
  explicit GrpcTest(const FixtureOptions& options = {})
      : tokenizer_({std::string(64 << 10, 'x')}),
        fixture_(engine_, tokenizer_, ::testing::UnitTest::GetInstance()->current_test_info()->name(), options) {
    fixture_.server->SetFrontend(fixture_.frontend.get());
  }

  v1::Generation::Stub& stub() { return *fixture_.stub; }

  grpc::Status RunUnary(const v1::GenerateRequest& request, v1::GenerateResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::GenerateResponse ignored;
    return stub().Generate(&context, request, response == nullptr ? &ignored : response);
  }
  grpc::Status RunStream(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    auto reader = stub().GenerateStream(&context, request);
    for (v1::GenerateResponse response; reader->Read(&response);) {
    }
    return reader->Finish();
  }

  FakeEngine engine_{500'000, 4096};
  FakeTokenizer tokenizer_;
  ServerFixture fixture_;
};

}  // namespace quire::testing
