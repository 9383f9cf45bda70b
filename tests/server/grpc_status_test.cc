// What a call ends with: health, refusals, failures, small calls.

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "quire/v1/admin.grpc.pb.h"
#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using ::grpc::health::v1::HealthCheckResponse;
using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;
using ::quire::testing::GetDetail;
using ::quire::testing::GrpcTest;
using ::quire::testing::ServerFixture;
using ::quire::testing::SocketAddress;
using ::quire::testing::TextRequest;

TEST(GrpcServerTest, HealthAndCallsFollowLoadingServingUnhealthyAndDraining) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  ServerFixture fixture(engine, tokenizer, "health");
  const auto health = grpc::health::v1::Health::NewStub(fixture.channel);
  const auto check = [&](const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    return health->Check(&context, request, response);
  };
  HealthCheckResponse response;
  ASSERT_TRUE(check("", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(check("quire.v1.Generation", &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(check("no.such.Service", &response).error_code(), grpc::StatusCode::NOT_FOUND);
  {
    grpc::ClientContext context;
    v1::GenerateResponse answer;
    const grpc::Status status = fixture.stub->Generate(&context, TextRequest(), &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    google::rpc::RetryInfo retry;
    EXPECT_TRUE(GetDetail(status, &retry));
    EXPECT_GT(retry.retry_delay().seconds(), 0);
  }

  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("quire.v1.Generation");
  auto watch = health->Watch(&context, request);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  fixture.server->SetFrontend(fixture.frontend.get());
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  engine.SetHealthy(false);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  engine.SetHealthy(true);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  fixture.server->SetDraining();
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
}

TEST(GrpcServerTest, PortsArePickedNotSharedAndChecked) {
  GrpcServerOptions options;
  options.listen = "127.0.0.1:0";
  const auto first = GrpcServer::Start(options);
  ASSERT_TRUE(first.ok());
  EXPECT_NE((*first)->address(), "127.0.0.1:0");
  options.listen = (*first)->address();
  EXPECT_EQ(GrpcServer::Start(options).status().code(), absl::StatusCode::kUnavailable);
  options.listen = SocketAddress("taken");
  const auto second = GrpcServer::Start(options);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(GrpcServer::Start(options).status().code(), absl::StatusCode::kUnavailable);
  for (const char* bad : {"", "localhost", ":5", "127.0.0.1:70000", "127.0.0.1:x", "unix:"}) {
    options.listen = bad;
    EXPECT_EQ(GrpcServer::Start(options).status().code(), absl::StatusCode::kFailedPrecondition) << bad;
  }
}

TEST_F(GrpcTest, EveryRefusalHasItsStatusAndDetailsInBothForms) {
  v1::GenerateRequest bad_field = TextRequest(), bad_model = TextRequest(), no_prompt, live = TextRequest("live");
  bad_field.mutable_sampling()->set_top_p(0);
  bad_model.set_model("other");
  v1::GenerateRequest too_long;
  too_long.mutable_token_ids()->mutable_ids()->Resize(4096, 4'000'000'000u);
  grpc::ClientContext live_context;
  auto live_reader = stub().GenerateStream(&live_context, live);
  engine_.WaitForRequest(1);
  struct Case {
    v1::GenerateRequest request;
    grpc::StatusCode code;
    std::string field;
  };
  const std::vector<Case> cases = {{bad_field, grpc::StatusCode::INVALID_ARGUMENT, "sampling.top_p"},
                                   {no_prompt, grpc::StatusCode::INVALID_ARGUMENT, "prompt"},
                                   {too_long, grpc::StatusCode::INVALID_ARGUMENT, "prompt"},
                                   {bad_model, grpc::StatusCode::NOT_FOUND, ""},
                                   {live, grpc::StatusCode::ALREADY_EXISTS, ""}};
  for (const Case& c : cases) {
    for (const grpc::Status& status : {RunUnary(c.request), RunStream(c.request)}) {
      EXPECT_EQ(status.error_code(), c.code) << status.error_message();
      google::rpc::BadRequest details;
      ASSERT_EQ(GetDetail(status, &details), !c.field.empty());
      if (!c.field.empty()) {
        EXPECT_EQ(details.field_violations(0).field(), c.field);
      }
    }
  }
  live_context.TryCancel();
  const std::vector<std::pair<absl::Status, grpc::StatusCode>> refusals = {
      {absl::ResourceExhaustedError("queue full"), grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::UnavailableError("draining"), grpc::StatusCode::UNAVAILABLE}};
  for (const auto& [refusal, code] : refusals) {
    engine_.RefuseWith(refusal);
    for (const grpc::Status& status : {RunUnary(TextRequest()), RunStream(TextRequest())}) {
      EXPECT_EQ(status.error_code(), code);
      google::rpc::RetryInfo retry;
      EXPECT_TRUE(GetDetail(status, &retry));
    }
  }
}

TEST_F(GrpcTest, ARefusalTellsTheEnginesEstimateOfWhenToComeBack) {
  absl::Status refusal = absl::ResourceExhaustedError("a request would wait about 12.5 s, max_queue_wait is 10 s");
  refusal.SetPayload(kRetryMsPayload, absl::Cord("2500"));
  engine_.RefuseWith(refusal);
  for (const grpc::Status& status : {RunUnary(TextRequest()), RunStream(TextRequest())}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(status.error_message(), refusal.message());
    google::rpc::RetryInfo retry;
    ASSERT_TRUE(GetDetail(status, &retry));
    EXPECT_EQ(retry.retry_delay().seconds(), 2);
    EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
  }
}

TEST(GrpcServerTest, WithKeysNobodyIsAnsweredWithoutOne) {
  const std::string path = ::testing::TempDir() + "quire_grpc_keys_" + std::to_string(getpid());
  std::ofstream(path) << "user-key team user\nadmin-key - admin\n";
  const ApiKeyStore keys(*ApiKeys::Load(path));
  FakeEngine engine;
  FakeTokenizer tokenizer;
  testing::FixtureOptions options;
  options.frontend.keys = &keys;
  ServerFixture fixture(engine, tokenizer, "keys", options);
  fixture.server->SetFrontend(fixture.frontend.get());
  const auto admin = v1::Admin::NewStub(fixture.channel);
  const auto codes = [&](const std::string& key) {
    const auto context = [&key] {
      auto made = std::make_unique<grpc::ClientContext>();
      if (!key.empty()) made->AddMetadata("authorization", "Bearer " + key);
      return made;
    };
    std::vector<grpc::StatusCode> all;
    v1::GetStatsResponse stats;
    all.push_back(fixture.stub->GetStats(context().get(), {}, &stats).error_code());
    v1::GenerateResponse response;
    v1::GenerateRequest bad = TextRequest();
    bad.set_model("other");  // NOT_FOUND to those who may ask
    all.push_back(fixture.stub->Generate(context().get(), bad, &response).error_code());
    const auto stream = context();
    all.push_back(fixture.stub->GenerateStream(stream.get(), bad)->Finish().error_code());
    v1::ListPrefixesResponse prefixes;
    v1::ListPrefixesRequest list;
    list.set_page_token("none");  // INVALID_ARGUMENT to those who may ask
    all.push_back(admin->ListPrefixes(context().get(), list, &prefixes).error_code());
    return all;
  };
  using enum grpc::StatusCode;
  using Codes = std::vector<grpc::StatusCode>;
  EXPECT_EQ(codes(""), Codes(4, UNAUTHENTICATED));
  EXPECT_EQ(codes("guess"), Codes(4, UNAUTHENTICATED));
  EXPECT_EQ(codes("user-key"), (Codes{OK, NOT_FOUND, NOT_FOUND, PERMISSION_DENIED}));
  EXPECT_EQ(codes("admin-key"), (Codes{OK, NOT_FOUND, NOT_FOUND, INVALID_ARGUMENT}));
  const auto health = grpc::health::v1::Health::NewStub(fixture.channel);
  grpc::ClientContext context;
  HealthCheckResponse response;
  EXPECT_TRUE(health->Check(&context, {}, &response).ok());  // probes carry none
}

TEST_F(GrpcTest, ATenantHasOneNameForItsShareAndOneNumberForItsQuota) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  const auto submit = [&](const char* tenant) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    if (tenant != nullptr) contexts.back()->AddMetadata("x-tenant", tenant);
    readers.push_back(stub().GenerateStream(contexts.back().get(), TextRequest()));
    const EngineRequest request = engine_.WaitForRequest(readers.size());
    return std::make_pair(request.tenant_name, request.tenant);
  };
  using Tenant = std::pair<std::string, int32_t>;
  EXPECT_EQ(submit(nullptr), Tenant("", 0));
  EXPECT_EQ(submit("acme"), Tenant("acme", 1));
  EXPECT_EQ(submit("bolt"), Tenant("bolt", 2));
  EXPECT_EQ(submit("acme"), Tenant("acme", 1));
  EXPECT_EQ(submit(""), Tenant("", 0));
  for (const auto& context : contexts) context->TryCancel();
}

TEST_F(GrpcTest, B144FailuresAfterTheFirstTokenAreStatusesAndOurFaultsOpaque) {
  const std::vector<std::pair<absl::Status, grpc::StatusCode>> cases = {
      {absl::FailedPreconditionError("logits are not finite"), grpc::StatusCode::FAILED_PRECONDITION},
      {absl::DeadlineExceededError("too late"), grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::InternalError("secret pointer 0x1234"), grpc::StatusCode::INTERNAL}};
  size_t count = 0;
  for (const auto& [error, code] : cases) {
    grpc::ClientContext context;
    auto reader = stub().GenerateStream(&context, TextRequest());
    const uint64_t handle = engine_.WaitForRequest(++count).handle;
    engine_.EmitToken(handle, 'a');
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    StepOutputs step;
    step.sequences.push_back(FakeEngine::MakeEvent(handle, -1, FinishReason::kError, 0));
    step.sequences.back().error = error;
    engine_.Emit(step);
    EXPECT_FALSE(reader->Read(&response));
    const grpc::Status status = reader->Finish();
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message().find("secret"), std::string::npos);
  }
}

TEST_F(GrpcTest, B150ManyLargeCallsTakeNoMoreMemoryThanAFew) {
  const auto resident_bytes = [] {
    int64_t size = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  v1::GenerateRequest large = TextRequest();
  large.set_text(std::string(1 << 20, 'x'));  // far more tokens than the model takes
  constexpr int kThreads = 16, kCalls = 32;
  const int64_t before = resident_bytes();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < kThreads; ++i) {
    clients.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) {
        const grpc::StatusCode code = RunUnary(large).error_code();
        wrong += code != grpc::StatusCode::INVALID_ARGUMENT && code != grpc::StatusCode::RESOURCE_EXHAUSTED;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LT(resident_bytes() - before, int64_t{kThreads * kCalls / 2} << 20);
  grpc::ClientContext context;
  v1::GetStatsResponse stats;
  EXPECT_TRUE(stub().GetStats(&context, {}, &stats).ok());
}

TEST_F(GrpcTest, B125MalformedUtf8IsRefusedAndTheServerLives) {
  grpc::GenericStub generic(fixture_.channel);
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const std::string bytes = "\x1a\x02\xC3\x28";  // field 3, text, two bytes that are no UTF-8
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  auto call = generic.PrepareUnaryCall(&context, "/quire.v1.Generation/Generate", request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_FALSE(status.ok());
  grpc::ClientContext stats_context;
  v1::GetStatsResponse stats;
  EXPECT_TRUE(stub().GetStats(&stats_context, {}, &stats).ok());
}

TEST_F(GrpcTest, ModelInfoTokenizeAndDetokenize) {
  grpc::ClientContext c1, c2, c3, c4, c5, c6, c7;
  v1::GetModelInfoResponse info;
  ASSERT_TRUE(stub().GetModelInfo(&c1, {}, &info).ok());
  EXPECT_EQ(info.model(), "fake");
  EXPECT_EQ(info.max_model_len(), 4096u);
  EXPECT_EQ(info.eos_token_ids(0), 257u);
  v1::TokenizeRequest tokenize;
  tokenize.set_text("hi");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub().Tokenize(&c2, tokenize, &tokens).ok());
  ASSERT_EQ(tokens.ids_size(), 3);
  EXPECT_EQ(tokens.max_model_len(), 4096u);
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_ids() = tokens.ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub().Detokenize(&c3, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "hi");
  tokenize.set_text(std::string(1 << 20, 'x'));
  ASSERT_TRUE(stub().Tokenize(&c6, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.ids_size(), (1 << 20) + 1);
  tokenize.mutable_text()->push_back('x');
  const grpc::Status too_long = stub().Tokenize(&c7, tokenize, &tokens);
  EXPECT_EQ(too_long.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(too_long.error_message(), "text: 1048577 bytes are too long; at most 1048576");
  google::rpc::BadRequest details;
  ASSERT_TRUE(GetDetail(too_long, &details));
  EXPECT_EQ(details.field_violations(0).field(), "text");
  detokenize.add_ids(4'000'000'000u);
  EXPECT_EQ(stub().Detokenize(&c4, detokenize, &text).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // A piece of 64 KiB: 63 are less than the 4 MiB of an answer, 64 are just too many.
  grpc::ClientContext c8, c9;
  detokenize.mutable_ids()->Clear();
  detokenize.mutable_ids()->Resize(63, FakeTokenizer::kFirstPiece);
  ASSERT_TRUE(stub().Detokenize(&c8, detokenize, &text).ok());
  EXPECT_EQ(text.text().size(), 63u << 16);
  detokenize.add_ids(FakeTokenizer::kFirstPiece);
  const grpc::Status too_much = stub().Detokenize(&c9, detokenize, &text);
  EXPECT_EQ(too_much.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(too_much.error_message(),
            "the text has 4194304 bytes; at most 4194288 are told at once: ask for fewer ids");
  detokenize.mutable_ids()->Resize((1 << 20) + 1, 'h');
  const grpc::Status too_many = stub().Detokenize(&c5, detokenize, &text);
  EXPECT_EQ(too_many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(too_many.error_message().find("ids: 1048577 ids are too many; at most 1048576"), std::string::npos)
      << too_many.error_message();
}

}  // namespace
}  // namespace quire
