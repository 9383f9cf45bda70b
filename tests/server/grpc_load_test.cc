// The real engine on the simulated model behind the real port.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using LoadTest = testing::GrpcTest;
using ::quire::testing::FakeTokenizer;
using ::quire::testing::GetDetail;
using ::quire::testing::ServerFixture;
using ::quire::testing::TextRequest;

int64_t NumThreads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

// Streams that have had a token and wait for the next one: clients, engine and server are one process here, and the
// first two need no thread for a stream.
TEST_F(LoadTest, B151FiveHundredIdleStreamsTakeNoThreadEachAndHealthAnswers) {
  constexpr int kStreams = 500;
  const auto health = grpc::health::v1::Health::NewStub(fixture_.channel);
  const auto is_serving = [&health] {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckResponse response;
    return health->Check(&context, {}, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  ASSERT_TRUE(is_serving());
  const int64_t before = NumThreads();
  std::vector<grpc::ClientContext> contexts(kStreams);
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  for (grpc::ClientContext& context : contexts) {
    readers.push_back(stub().GenerateStream(&context, TextRequest()));
    engine_.EmitToken(engine_.WaitForRequest(readers.size()).handle, 'x');
  }
  v1::GenerateResponse response;
  for (const auto& reader : readers) EXPECT_TRUE(reader->Read(&response));
  EXPECT_LT(NumThreads() - before, 64);
  EXPECT_TRUE(is_serving());
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (const auto& reader : readers) EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

class SimTest : public ::testing::Test {
 protected:
  explicit SimTest(EngineOptions options = {}) {
    const std::string folder = absl::StrCat(::testing::TempDir(), "quire_sim_", getpid());
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258, "hidden_size": 64,
               "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
               "rms_norm_eps": 1e-5, "max_position_embeddings": 512, "rope_theta": 10000.0, "eos_token_id": 257,
               "tie_word_embeddings": true})";
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
    fixture_ = std::make_unique<ServerFixture>(*engine_, tokenizer_, "sim");
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

TEST_F(SimTest, B155FiveHundredStreamsAThirdCancelledLeaveNothingBehind) {
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

class SmallStepTest : public SimTest {
 protected:
  SmallStepTest() : SimTest(Options()) {}

  static EngineOptions Options() {
    EngineOptions options;
    options.scheduler.max_num_batched_tokens = 32;
    return options;
  }
};

TEST_F(SmallStepTest, AnUnreadPromptIsHeldAndItsLogprobsAreCompleteWhenReadLate) {
  // 4 KiB a position, 2 MiB together.
  v1::GenerateRequest request;
  for (uint32_t i = 0; i < 500; ++i) request.mutable_token_ids()->add_ids(i * 7 % 256);
  request.mutable_output()->set_prompt_logprobs(-1);
  request.mutable_stopping()->set_max_tokens(4);
  request.mutable_stopping()->set_ignore_eos(true);
  const auto read = [](grpc::ClientReader<v1::GenerateResponse>& reader) {
    std::vector<std::string> positions;
    for (v1::GenerateResponse response; reader.Read(&response);) {
      for (const auto& position : response.prompt().logprobs()) positions.push_back(position.SerializeAsString());
    }
    EXPECT_TRUE(reader.Finish().ok());
    return positions;
  };
  grpc::ClientContext first, second;
  const std::vector<std::string> prompt_read = read(*fixture_->stub->GenerateStream(&first, request));
  EXPECT_EQ(prompt_read.size(), 500u);

  const int64_t finished = engine_->GetStats().requests_finished;
  const auto stub = v1::Generation::NewStub(fixture_->NewChannel(/*small_window=*/true));
  const auto unread = stub->GenerateStream(&second, request);
  EngineStats stats;
  do {
    stats = engine_->GetStats();
  } while (stats.requests_held == 0);
  EXPECT_EQ(stats.requests_finished, finished);
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0);
  EXPECT_EQ(stats.kv_blocks_active, 0);
  EXPECT_EQ(read(*unread), prompt_read);
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

class ImpatientTest : public SimTest {
 protected:
  ImpatientTest() : SimTest(Options()) {}

  static EngineOptions Options() {
    EngineOptions options;
    options.scheduler.max_num_seqs = 1;
    options.max_queue_wait = absl::Milliseconds(1);
    return options;
  }
};

TEST_F(ImpatientTest, WhoWouldWaitTooLongIsToldForHowLong) {
  // Eight clients for one place: as soon as it is known how fast requests start, some would have to wait.
  std::atomic<bool> refused = false;
  const auto ask = [&] {
    while (!refused) {
      v1::GenerateRequest request = TextRequest();
      request.mutable_stopping()->set_max_tokens(8);
      grpc::ClientContext context;
      v1::GenerateResponse response;
      const grpc::Status status = fixture_->stub->Generate(&context, request, &response);
      if (status.ok()) continue;
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
      EXPECT_NE(status.error_message().find("max_queue_wait is 0.001 s"), std::string::npos) << status.error_message();
      google::rpc::RetryInfo retry;
      EXPECT_TRUE(GetDetail(status, &retry));
      EXPECT_GT(retry.retry_delay().seconds() + retry.retry_delay().nanos(), 0);
      refused = true;
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(ask);
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace quire
