#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "quire/v1/admin.grpc.pb.h"
#include "scheduler/engine_with_runner.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/server/grpc_fixture.h"

// quire.v1.Admin over a real connection and a real engine on the simulated model.
namespace quire::testing {

inline constexpr int kBlockSize = 8;

// On 64 blocks. Steps pass `gate`.
inline std::unique_ptr<Engine> MakeEngine(EngineOptions options, StepGate& gate) {
  ModelConfig config;
  config.vocab_size = 500'000;
  config.max_position_embeddings = 256;
  auto sim = CreateSimRunner({.config = config, .num_kv_blocks = 65, .block_size = kBlockSize, .time_scale = 0});
  EXPECT_TRUE(sim.ok()) << sim.status();
  RunnerHooks hooks;
  hooks.before_step = [&gate](int64_t step, const ForwardBatch&) {
    gate.Pass(step);
    return absl::OkStatus();
  };
  options.max_model_len = 200;
  auto engine = CreateEngineWithRunner(options, config, std::make_unique<HookedRunner>(*std::move(sim), hooks), {});
  EXPECT_TRUE(engine.ok()) << engine.status();
  (*engine)->Start();
  return *std::move(engine);
}

inline v1::TokenIds Ids(int begin, int count) {
  v1::TokenIds ids;
  for (int i = 0; i < count; ++i) ids.add_ids(begin + i);
  return ids;
}

class AdminTest : public ::testing::Test {
 protected:
  explicit AdminTest(EngineOptions options = {}, const FixtureOptions& fixture = {})
      : engine_(MakeEngine(std::move(options), gate_)),
        fixture_(*engine_, tokenizer_, ::testing::UnitTest::GetInstance()->current_test_info()->name(), fixture),
        admin_(v1::Admin::NewStub(fixture_.channel)) {
    fixture_.server->SetFrontend(fixture_.frontend.get());
  }

  v1::Usage Generate(const v1::TokenIds& ids, const std::string& tenant = "", const v1::Cache& cache = {}) {
    v1::GenerateRequest request;
    *request.mutable_token_ids() = ids;
    *request.mutable_cache() = cache;
    request.mutable_stopping()->set_max_tokens(1);
    grpc::ClientContext context;
    if (!tenant.empty()) context.AddMetadata("x-tenant", tenant);
    v1::GenerateResponse response;
    const grpc::Status status = fixture_.stub->Generate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.usage();
  }
  v1::ListPrefixesResponse List(const v1::ListPrefixesRequest& request = {}) {
    grpc::ClientContext context;
    v1::ListPrefixesResponse response;
    const grpc::Status status = admin_->ListPrefixes(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Warm(const v1::WarmPrefixRequest& request, v1::WarmPrefixResponse* response) {
    grpc::ClientContext context;
    return admin_->WarmPrefix(&context, request, response);
  }
  grpc::Status Drop(const v1::DropPrefixRequest& request, uint32_t* dropped) {
    grpc::ClientContext context;
    v1::DropPrefixResponse response;
    const grpc::Status status = admin_->DropPrefix(&context, request, &response);
    *dropped = response.dropped_blocks();
    return status;
  }

  StepGate gate_{INT64_MAX};
  std::unique_ptr<Engine> engine_;
  FakeTokenizer tokenizer_;
  ServerFixture fixture_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

}  // namespace quire::testing
