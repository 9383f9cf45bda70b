#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "quire/v1/generation.grpc.pb.h"
#include "server/frontend/frontend.h"
#include "server/grpc/grpc_server.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/fake_tokenizer.h"

namespace quire {
namespace {

using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;
using HealthStub = ::grpc::health::v1::Health::Stub;
using ::grpc::health::v1::HealthCheckResponse;

std::string SocketAddress(const std::string& name) {
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

v1::GenerateRequest TextRequest(const std::string& id = "") {
  v1::GenerateRequest request;
  request.set_request_id(id);
  request.set_text("p");
  return request;
}

// A server over an engine, and a client of it.
class ServerFixture {
 public:
  ServerFixture(Engine& engine, const Tokenizer& tokenizer, const std::string& name, absl::Duration stall_timeout,
                absl::Duration duplicate_wait = absl::ZeroDuration()) {
    FrontendOptions options;
    options.served_model_names = {"fake"};
    options.max_logprobs = -1;
    options.duplicate_wait = duplicate_wait;
    frontend = std::make_unique<Frontend>(engine, tokenizer, options);
    GrpcServerOptions server_options;
    server_options.listen = SocketAddress(name);
    server_options.stall_timeout = stall_timeout;
    auto started = GrpcServer::Start(server_options);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
    channel = NewChannel();
    stub = v1::Generation::NewStub(channel);
  }
  ~ServerFixture() {
    frontend->Stop();
    server->Shutdown(absl::Now() + absl::Seconds(5));
  }

  // One with a connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server->address(), grpc::InsecureChannelCredentials(), args);
  }

  std::unique_ptr<Frontend> frontend;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Generation::Stub> stub;
};

class GrpcTest : public ::testing::Test {
 protected:
  GrpcTest()
      : tokenizer_({std::string(64 << 10, 'x')}),
        fixture_(engine_, tokenizer_, ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                 absl::Milliseconds(300)) {
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

TEST(GrpcServerTest, HealthAndCallsFollowLoadingServingUnhealthyAndDraining) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  ServerFixture fixture(engine, tokenizer, "health", absl::Seconds(30));
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

TEST_F(GrpcTest, StreamAndUnaryGiveTheSame) {
  v1::GenerateRequest request = TextRequest("r");
  request.mutable_sampling()->set_n(2);
  request.mutable_sampling()->set_seed(-7);
  const auto feed = [this](size_t count) {
    const uint64_t handle = engine_.WaitForRequest(count).handle;
    for (char c : std::string("hello")) {
      engine_.EmitToken(handle, c, FinishReason::kNone, 0);
      engine_.EmitToken(handle, c + 1, FinishReason::kNone, 1);
    }
    engine_.EmitToken(handle, FakeTokenizer::kEos, FinishReason::kStop, 0);
    engine_.EmitToken(handle, '!', FinishReason::kLength, 1);
  };
  std::thread feeder([&] { feed(1); });
  grpc::ClientContext context;
  auto reader = stub().GenerateStream(&context, request);
  std::string texts[2];
  std::vector<uint32_t> ids[2];
  int finishes = 0, usages = 0;
  bool first = true;
  for (v1::GenerateResponse response; reader->Read(&response); first = false) {
    EXPECT_EQ(response.request_id(), "r");
    EXPECT_EQ(response.has_prompt(), first);
    EXPECT_EQ(usages, 0);
    usages += response.has_usage();
    for (const auto& sequence : response.sequences()) {
      texts[sequence.index()] += sequence.text();
      ids[sequence.index()].insert(ids[sequence.index()].end(), sequence.token_ids().begin(),
                                   sequence.token_ids().end());
      finishes += sequence.has_finish();
    }
  }
  ASSERT_TRUE(reader->Finish().ok());
  feeder.join();
  EXPECT_EQ(usages, 1);
  EXPECT_EQ(finishes, 2);

  std::thread again([&] { feed(2); });
  v1::GenerateResponse whole;
  ASSERT_TRUE(RunUnary(request, &whole).ok());
  again.join();
  ASSERT_EQ(whole.sequences_size(), 2);
  for (const auto& sequence : whole.sequences()) {
    EXPECT_EQ(sequence.text(), texts[sequence.index()]);
    EXPECT_EQ(std::vector<uint32_t>(sequence.token_ids().begin(), sequence.token_ids().end()), ids[sequence.index()]);
  }
  EXPECT_EQ(texts[0], "hello");
  EXPECT_EQ(texts[1], "ifmmp!");
  EXPECT_EQ(whole.prompt().seed(), -7);
  EXPECT_EQ(whole.usage().completion_tokens(), 12u);
  EXPECT_EQ(whole.usage().prompt_tokens(), 2u);
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

TEST_F(GrpcTest, FailuresAfterTheFirstTokenAreStatusesAndOurFaultsOpaque) {
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

TEST(GrpcServerTest, ACancelledIdIsUsableAtOnceRoundAfterRound) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  ServerFixture fixture(engine, tokenizer, "reuse", absl::Seconds(30), absl::InfiniteDuration());
  fixture.server->SetFrontend(fixture.frontend.get());
  for (size_t round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    grpc::ClientContext first, second;
    auto reader = fixture.stub->GenerateStream(&first, TextRequest("same"));
    const uint64_t handle = engine.WaitForRequest(2 * round + 1).handle;
    first.TryCancel();
    std::thread feeder([&] {
      const uint64_t next = engine.WaitForRequest(2 * round + 2).handle;
      EXPECT_NE(handle, next);
      engine.EmitToken(next, 'k', FinishReason::kLength);
    });
    // This call may overtake the cancellation.
    v1::GenerateResponse response;
    const grpc::Status status = fixture.stub->Generate(&second, TextRequest("same"), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.sequences(0).text(), "k");
    feeder.join();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  engine.WaitForAborts(200);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
}

TEST_F(GrpcTest, ADeadlineReachesTheEngineAndEndsTheCall) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  auto reader = stub().GenerateStream(&context, TextRequest());
  EXPECT_LT(engine_.WaitForRequest(1).deadline, absl::Now() + absl::Seconds(1));
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  engine_.WaitForAborts(1);
}

TEST_F(GrpcTest, AbortEndsAStreamWithItsReason) {
  grpc::ClientContext context;
  auto reader = stub().GenerateStream(&context, TextRequest("x"));
  engine_.WaitForRequest(1);
  grpc::ClientContext abort_context;
  v1::AbortRequest request;
  v1::AbortResponse nothing;
  request.add_request_ids("unknown");
  request.add_request_ids("x");
  ASSERT_TRUE(stub().Abort(&abort_context, request, &nothing).ok());
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.sequences(0).finish().reason(), v1::Finish::REASON_ABORT);
  EXPECT_TRUE(response.has_usage());
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(GrpcTest, AClientThatDoesNotReadIsCancelledAndDelaysNobody) {
  const auto other_channel = fixture_.NewChannel();
  const auto slow_stub = v1::Generation::NewStub(other_channel);
  grpc::ClientContext slow_context;
  auto slow = slow_stub->GenerateStream(&slow_context, TextRequest("slow"));  // Read is never called
  const uint64_t slow_handle = engine_.WaitForRequest(1).handle;
  for (int i = 0; i < 200; ++i) engine_.EmitToken(slow_handle, FakeTokenizer::kFirstPiece);  // 64 KiB each

  std::thread feeder([this] { engine_.EmitToken(engine_.WaitForRequest(2).handle, 'k', FinishReason::kLength); });
  v1::GenerateResponse response;
  ASSERT_TRUE(RunUnary(TextRequest("quick"), &response).ok());
  feeder.join();
  EXPECT_EQ(response.sequences(0).text(), "k");

  EXPECT_EQ(engine_.WaitForHold(1), std::make_pair(slow_handle, true));
  engine_.WaitForAborts(1);
  EXPECT_EQ(engine_.aborts()[0].first, slow_handle);
  grpc::ClientContext context;
  v1::GetStatsResponse stats;
  ASSERT_TRUE(stub().GetStats(&context, {}, &stats).ok());
  EXPECT_EQ(stats.streams_stalled(), 1u);
  EXPECT_TRUE(fixture_.frontend->WaitIdle(absl::InfiniteFuture()));
}

TEST(GrpcServerTest, AClientThatReadsLateGetsEverythingAndItsRequestIsHeldMeanwhile) {
  FakeEngine engine;
  FakeTokenizer tokenizer({std::string(64 << 10, 'x')});
  ServerFixture fixture(engine, tokenizer, "late", absl::Hours(1));
  fixture.server->SetFrontend(fixture.frontend.get());
  grpc::ClientContext context;
  auto reader = fixture.stub->GenerateStream(&context, TextRequest());
  const uint64_t handle = engine.WaitForRequest(1).handle;
  constexpr size_t kTokens = 100;
  for (size_t i = 1; i < kTokens; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);
  EXPECT_EQ(engine.WaitForHold(1), std::make_pair(handle, true));
  std::thread feeder([&] {
    EXPECT_EQ(engine.WaitForHold(2), std::make_pair(handle, false));
    engine.EmitToken(handle, '.', FinishReason::kLength);
  });
  size_t bytes = 0;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    EXPECT_LE(response.ByteSizeLong(), size_t{512} << 10);
    for (const auto& sequence : response.sequences()) bytes += sequence.text().size();
  }
  EXPECT_TRUE(reader->Finish().ok());
  feeder.join();
  EXPECT_EQ(bytes, ((kTokens - 1) << 16) + 1);
}

TEST(GrpcServerTest, AStreamIsWaitedForUntilItsClientHasReadIt) {
  FakeEngine engine;
  FakeTokenizer tokenizer({std::string(64 << 10, 'x')});
  ServerFixture fixture(engine, tokenizer, "sent", absl::Hours(1));
  fixture.server->SetFrontend(fixture.frontend.get());
  grpc::ClientContext context;
  auto reader = fixture.stub->GenerateStream(&context, TextRequest());
  const uint64_t handle = engine.WaitForRequest(1).handle;
  for (int i = 1; i < 400; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);
  engine.EmitToken(handle, '.', FinishReason::kLength);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
  EXPECT_FALSE(fixture.server->WaitStreamsSent(absl::InfinitePast()));
  for (v1::GenerateResponse response; reader->Read(&response);) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(fixture.server->WaitStreamsSent(absl::InfiniteFuture()));
}

TEST(GrpcServerTest, AUnaryAnswerHasALimit) {
  FakeEngine engine(300, 4096);
  FakeTokenizer tokenizer({std::string(1 << 20, 'x')});
  ServerFixture fixture(engine, tokenizer, "unary", absl::Hours(1));
  fixture.server->SetFrontend(fixture.frontend.get());
  std::thread feeder([&] {
    const uint64_t handle = engine.WaitForRequest(1).handle;
    for (int i = 0; i < 64; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);
  });
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(fixture.stub->Generate(&context, TextRequest(), &response).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  feeder.join();
  engine.WaitForAborts(1);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
}

TEST_F(GrpcTest, WholeVocabularyPromptLogprobsComeInMessagesBelowFourMebibytes) {
  v1::GenerateRequest request;
  for (int i = 0; i < 12; ++i) request.mutable_token_ids()->add_ids(i);
  request.mutable_output()->set_prompt_logprobs(-1);
  grpc::ClientContext context;
  auto reader = stub().GenerateStream(&context, request);
  const uint64_t handle = engine_.WaitForRequest(1).handle;
  constexpr int kEntries = 100'000;
  StepOutputs step;
  step.logprobs.resize(kEntries);
  for (int i = 0; i < kEntries; ++i) step.logprobs[i] = {i, -1.0f};
  for (int32_t position = 1; position < 12; ++position)
    step.prompt_scores.push_back({handle, position, 0, kEntries, 1});
  step.sequences.push_back(FakeEngine::MakeEvent(handle, 'a', FinishReason::kLength, 0));
  engine_.Emit(step);
  int positions = 0, messages = 0;
  bool last = false;
  for (v1::GenerateResponse response; reader->Read(&response); ++messages) {
    EXPECT_LT(response.ByteSizeLong(), size_t{4} << 20);
    for (const auto& position : response.prompt().logprobs()) {
      EXPECT_EQ(position.top_size(), positions == 0 ? 0 : kEntries - 1);
      ++positions;
    }
    last = response.has_usage();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(last);
  EXPECT_EQ(positions, 12);
  EXPECT_GT(messages, 2);
}

TEST_F(GrpcTest, TokensOfAFastEngineAreMergedAndNoneIsLost) {
  constexpr int kTokens = 3000;
  std::thread feeder([this] {
    const uint64_t handle = engine_.WaitForRequest(1).handle;
    for (int i = 1; i < kTokens; ++i) engine_.EmitToken(handle, 'a' + i % 26);
    engine_.EmitToken(handle, '.', FinishReason::kLength);
  });
  grpc::ClientContext context;
  auto reader = stub().GenerateStream(&context, TextRequest());
  std::string text;
  size_t ids = 0;
  for (v1::GenerateResponse response; reader->Read(&response);) {
    for (const auto& sequence : response.sequences()) {
      text += sequence.text();
      ids += sequence.token_ids_size();
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  feeder.join();
  std::string expected;
  for (int i = 1; i < kTokens; ++i) expected += static_cast<char>('a' + i % 26);
  EXPECT_EQ(text, expected + ".");
  EXPECT_EQ(ids, size_t{kTokens});
}

TEST_F(GrpcTest, MalformedUtf8IsRefusedAndTheServerLives) {
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
  grpc::ClientContext c1, c2, c3, c4, c5;
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
  detokenize.add_ids(4'000'000'000u);
  EXPECT_EQ(stub().Detokenize(&c4, detokenize, &text).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  detokenize.mutable_ids()->Resize((1 << 20) + 1, 'h');
  const grpc::Status too_many = stub().Detokenize(&c5, detokenize, &text);
  EXPECT_EQ(too_many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(too_many.error_message().find("ids: 1048577 ids are too many; at most 1048576"), std::string::npos)
      << too_many.error_message();
}

// --- the real engine on the simulated model

class SimTest : public ::testing::Test {
 protected:
  SimTest() {
    const std::string folder = absl::StrCat(::testing::TempDir(), "quire_sim_", getpid());
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258, "hidden_size": 64,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
               "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0, "eos_token_id": 257,
               "tie_word_embeddings": true})";
    EngineOptions options;
    options.model_path = folder;
    options.device = DeviceKind::kSim;
    options.num_kv_blocks = 96;  // preempts now and then
    options.block_size = 16;
    options.seed = 1;
    options.sim_time_scale = 0.02;
    auto engine = CreateEngine(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    engine_->Start();
    fixture_ = std::make_unique<ServerFixture>(*engine_, tokenizer_, "sim", absl::Seconds(30));
    fixture_->server->SetFrontend(fixture_->frontend.get());
  }

  // Reads a stream, cancelling it after `cancel_after` messages if that is not negative.
  grpc::Status Run(const v1::GenerateRequest& request, int cancel_after, uint32_t* tokens) {
    grpc::ClientContext context;
    auto reader = fixture_->stub->GenerateStream(&context, request);
    if (cancel_after == 0) context.TryCancel();
    v1::GenerateResponse response;
    for (int messages = 0; reader->Read(&response);) {
      if (++messages == cancel_after) context.TryCancel();
      if (response.has_usage()) *tokens = response.usage().completion_tokens();
    }
    return reader->Finish();
  }

  FakeTokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServerFixture> fixture_;
};

TEST_F(SimTest, FiveHundredStreamsAThirdCancelledLeaveNothingBehind) {
  constexpr int kRequests = 500, kClients = 64;
  std::atomic<int> next = 0, finished = 0, cancelled = 0, wrong = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&] {
      for (int i; (i = next.fetch_add(1)) < kRequests;) {
        std::mt19937 random(i);
        v1::GenerateRequest request;
        request.set_text(std::string(1 + random() % 120, static_cast<char>('a' + random() % 3)));
        const uint32_t max_tokens = 1 + random() % 40;
        const uint32_t n = 1 + random() % 2;
        request.mutable_stopping()->set_max_tokens(max_tokens);
        request.mutable_stopping()->set_ignore_eos(true);
        request.mutable_sampling()->set_n(n);
        const int cancel_after = random() % 3 == 0 ? static_cast<int>(random() % 20) : -1;
        uint32_t tokens = 0;
        const grpc::Status status = Run(request, cancel_after, &tokens);
        if (status.ok()) {
          ++finished;
          wrong += tokens != max_tokens * n;
        } else if (status.error_code() == grpc::StatusCode::CANCELLED && cancel_after >= 0) {
          ++cancelled;
        } else {
          ++wrong;
          ADD_FAILURE() << status.error_message();
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(finished + cancelled, kRequests);
  EXPECT_GT(cancelled, 50);
  EXPECT_TRUE(fixture_->frontend->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(fixture_->frontend->num_live_requests(), 0);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  const EngineStats stats = engine_->GetStats();
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0);
  EXPECT_EQ(stats.kv_blocks_active, 0);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
}

TEST_F(SimTest, AnUnreadStreamHoldsNoBlocksAndIsCompleteWhenReadLate) {
  constexpr int kSequences = 16;
  v1::GenerateRequest request = TextRequest();
  request.mutable_stopping()->set_max_tokens(480);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_sampling()->set_n(kSequences);
  request.mutable_sampling()->set_seed(3);
  std::vector<std::vector<uint32_t>> prompt_read(kSequences), read_late(kSequences);
  const auto read = [](grpc::ClientReader<v1::GenerateResponse>& reader, std::vector<std::vector<uint32_t>>* ids) {
    for (v1::GenerateResponse response; reader.Read(&response);) {
      for (const auto& sequence : response.sequences()) {
        auto& all = (*ids)[sequence.index()];
        all.insert(all.end(), sequence.token_ids().begin(), sequence.token_ids().end());
      }
    }
    EXPECT_TRUE(reader.Finish().ok());
  };
  grpc::ClientContext first;
  read(*fixture_->stub->GenerateStream(&first, request), &prompt_read);

  // 4 KiB a token, 30 MiB together: more than gRPC itself takes unread.
  request.mutable_output()->set_logprobs(-1);
  const EngineStats before = engine_->GetStats();
  grpc::ClientContext second;
  const auto unread = v1::Generation::NewStub(fixture_->NewChannel())->GenerateStream(&second, request);
  EngineStats stats;
  do {
    stats = engine_->GetStats();
  } while (stats.requests_running > 0 || stats.kv_blocks_active > 0 || stats.steps <= before.steps);
  EXPECT_EQ(stats.requests_finished, before.requests_finished);
  EXPECT_EQ(stats.requests_waiting, 0) << "a held request keeps nobody else out";
  uint32_t tokens = 0;
  EXPECT_TRUE(Run(TextRequest(), -1, &tokens).ok());
  read(*unread, &read_late);
  EXPECT_EQ(prompt_read, read_late);
  for (const std::vector<uint32_t>& ids : read_late) EXPECT_EQ(ids.size(), 480u);
}

TEST_F(SimTest, AfterAnAbortAtMostOneMorePlanHasTheRequest) {
  for (int round = 0; round < 20; ++round) {
    v1::GenerateRequest request;
    request.set_request_id("x");
    request.set_text("prompt");
    request.mutable_stopping()->set_max_tokens(480);
    request.mutable_stopping()->set_ignore_eos(true);
    grpc::ClientContext context;
    auto reader = fixture_->stub->GenerateStream(&context, request);
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    const std::vector<std::string> ids = {"x"};
    fixture_->frontend->Abort(ids);
    const auto steps = static_cast<uint64_t>(engine_->GetStats().steps);
    while (reader->Read(&response)) {
    }
    ASSERT_TRUE(reader->Finish().ok());
    EXPECT_LE(response.timings().last_step(), steps + 1);
  }
}

TEST_F(SimTest, DrainLetsTakenRequestsFinish) {
  std::atomic<int> started = 0, finished = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&] {
      v1::GenerateRequest request;
      request.set_text("prompt");
      request.mutable_stopping()->set_max_tokens(60);
      request.mutable_stopping()->set_ignore_eos(true);
      grpc::ClientContext context;
      auto reader = fixture_->stub->GenerateStream(&context, request);
      v1::GenerateResponse response;
      if (reader->Read(&response)) ++started;
      while (reader->Read(&response)) {
      }
      finished += reader->Finish().ok() && response.usage().completion_tokens() == 60;
    });
  }
  while (started < 16) std::this_thread::yield();
  fixture_->frontend->BeginDrain();
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(fixture_->stub->Generate(&context, TextRequest(), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(fixture_->frontend->WaitIdle(absl::InfiniteFuture()));
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(finished, 16);
}

}  // namespace
}  // namespace quire
