// GenerateStream and Generate: what comes, in which messages, to readers quick and slow, and how it ends.

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using ::quire::testing::FakeEngine;
using ::quire::testing::FakeTokenizer;
using ::quire::testing::FixtureOptions;
using ::quire::testing::GrpcTest;
using ::quire::testing::ServerFixture;
using ::quire::testing::TextRequest;

TEST_F(GrpcTest, TheBestOfManyComeWithGenerateOnly) {
  v1::GenerateRequest request = TextRequest("r");
  request.mutable_sampling()->set_best_of(3);
  grpc::ClientContext context;
  const grpc::Status status = stub().GenerateStream(&context, request)->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("use Generate"), std::string::npos) << status.error_message();

  std::thread feeder([&] {
    const EngineRequest taken = engine_.WaitForRequest(1);
    EXPECT_EQ(taken.params.n, 3);
    EXPECT_EQ(taken.params.logprobs, 0);
    const float logprobs[3][2] = {{-1, -2}, {-0.5f, -1.5f}, {-4, -0.25f}};
    StepOutputs step;
    for (int32_t s = 0; s < 3; ++s) {
      for (int32_t t = 0; t < 2; ++t) {
        SequenceOutput event =
            FakeEngine::MakeEvent(taken.handle, 'a' + s, t == 1 ? FinishReason::kLength : FinishReason::kNone, s);
        event.logprobs_begin = static_cast<int32_t>(step.logprobs.size());
        event.logprobs_count = 1;
        step.logprobs.push_back({'a' + s, logprobs[s][t]});
        step.sequences.push_back(event);
      }
    }
    engine_.Emit(std::move(step));
  });
  v1::GenerateResponse response;
  ASSERT_TRUE(RunUnary(request, &response).ok());
  feeder.join();
  ASSERT_EQ(response.sequences_size(), 1);
  EXPECT_EQ(response.sequences(0).index(), 0u);
  EXPECT_EQ(response.sequences(0).text(), "bb");
  EXPECT_EQ(response.sequences(0).finish().score(), -1);  // the mean of its tokens
  EXPECT_EQ(response.sequences(0).logprobs_size(), 0);
  EXPECT_EQ(response.usage().completion_tokens(), 6u);
}

TEST_F(GrpcTest, StructuredOutputReachesTheEngineCompiled) {
  v1::GenerateRequest request = TextRequest("r");
  request.mutable_structured_output()->mutable_choices()->add_choices("xyz");
  grpc::ClientContext context;
  const auto reader = stub().GenerateStream(&context, request);
  const EngineRequest taken = engine_.WaitForRequest(1);
  ASSERT_NE(taken.constraint, nullptr);
  EXPECT_EQ(taken.constraint->only_token(), 'x');
  engine_.EmitToken(taken.handle, 'x', FinishReason::kStop);
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  EXPECT_TRUE(reader->Finish().ok());

  request.mutable_structured_output()->set_regex("(?=a)");
  const grpc::Status refused = RunUnary(request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message().find("structured_output.regex: "), 0u) << refused.error_message();
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

TEST_F(GrpcTest, AForkStreamsLikeARequestOfItsOwn) {
  grpc::ClientContext parent_context;
  auto parent = stub().GenerateStream(&parent_context, TextRequest("parent"));
  const uint64_t handle = engine_.WaitForRequest(1).handle;
  engine_.EmitToken(handle, 'a');
  engine_.EmitToken(handle, 'b');
  std::string text;
  for (v1::GenerateResponse response; text.size() < 2 && parent->Read(&response);) {
    for (const auto& sequence : response.sequences()) text += sequence.text();
  }
  v1::ForkRequest fork;
  fork.set_request_id("parent");
  fork.set_at_token(3);
  fork.mutable_request()->set_request_id("child");
  fork.mutable_request()->set_text("more");
  grpc::ClientContext context;
  auto reader = stub().Fork(&context, fork);
  const EngineRequest child = engine_.WaitForRequest(2);
  EXPECT_EQ(child.prompt_ids, (std::vector<int32_t>{FakeTokenizer::kBos, 'p', 'a', 'm', 'o', 'r', 'e'}));
  EXPECT_EQ(child.fork_of.handle, handle);
  engine_.EmitToken(child.handle, '!', FinishReason::kLength);
  text.clear();
  for (v1::GenerateResponse response; reader->Read(&response);) {
    EXPECT_EQ(response.request_id(), "child");
    if (response.has_prompt()) {
      EXPECT_EQ(response.prompt().prompt_tokens(), 7u);
    }
    for (const auto& sequence : response.sequences()) text += sequence.text();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "!");

  grpc::ClientContext foreign_context;
  foreign_context.AddMetadata("x-tenant", "somebody");
  auto foreign = stub().Fork(&foreign_context, fork);
  v1::GenerateResponse none;
  EXPECT_FALSE(foreign->Read(&none));
  EXPECT_EQ(foreign->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  parent_context.TryCancel();
}

TEST(GrpcServerTest, ACancelledIdIsUsableAtOnceRoundAfterRound) {
  FixtureOptions options;
  options.frontend.duplicate_wait = absl::InfiniteDuration();
  FakeEngine engine;
  FakeTokenizer tokenizer;
  ServerFixture fixture(engine, tokenizer, "reuse", options);
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

// Long enough for the calls of clients that do read, on a busy machine too.
class StallTest : public GrpcTest {
 protected:
  StallTest() : GrpcTest(Options()) {}
  static FixtureOptions Options() {
    FixtureOptions options;
    options.server.stall_timeout = absl::Seconds(1);
    return options;
  }
};

TEST_F(StallTest, AClientThatDoesNotReadIsCancelledAndDelaysNobody) {
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
  ServerFixture fixture(engine, tokenizer, "late");
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
  ServerFixture fixture(engine, tokenizer, "sent");
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

TEST(GrpcServerTest, AUnaryAnswerHasTheSizeThatClientsTakeByDefault) {
  FakeEngine engine(300, 4096);
  FakeTokenizer tokenizer({std::string(1 << 20, 'x'), std::string(1022 << 10, 'y')});
  ServerFixture fixture(engine, tokenizer, "unary");
  fixture.server->SetFrontend(fixture.frontend.get());
  const auto run = [&](size_t count, int32_t last_token, v1::GenerateResponse* response) {
    std::thread feeder([&] {
      const uint64_t handle = engine.WaitForRequest(count).handle;
      for (int i = 0; i < 3; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);
      engine.EmitToken(handle, last_token, FinishReason::kLength);
    });
    grpc::ClientContext context;
    const grpc::Status status = fixture.stub->Generate(&context, TextRequest(), response);
    feeder.join();
    return status;
  };
  v1::GenerateResponse response;
  EXPECT_TRUE(run(1, FakeTokenizer::kFirstPiece + 1, &response).ok());
  EXPECT_EQ(response.sequences(0).text().size(), size_t{(3072 + 1022) << 10});
  const grpc::Status too_long = run(2, FakeTokenizer::kFirstPiece, &response);
  EXPECT_EQ(too_long.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(too_long.error_message(),
            "the answer has more than 4194304 bytes; use GenerateStream, or ask for less of it");
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
}

TEST(GrpcServerTest, AUnaryAnswerThatIsTooLongIsNotGeneratedToItsEnd) {
  FakeEngine engine(300, 4096);
  FakeTokenizer tokenizer({std::string(1 << 20, 'x')});
  ServerFixture fixture(engine, tokenizer, "endless");
  fixture.server->SetFrontend(fixture.frontend.get());
  std::thread feeder([&] {
    const uint64_t handle = engine.WaitForRequest(1).handle;
    for (int i = 0; i < 4; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);
  });
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(fixture.stub->Generate(&context, TextRequest(), &response).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  feeder.join();
  engine.WaitForAborts(1);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
}

// A Generate call of 3 MiB whose client reads the header of the answer and then nothing for a while.
class SlowUnaryCall {
 public:
  SlowUnaryCall(ServerFixture& fixture, FakeEngine& engine)
      : stub_(v1::Generation::NewStub(fixture.NewChannel(/*small_window=*/true))) {
    call_ = stub_->AsyncGenerate(&context_, TextRequest(), &queue_);
    call_->ReadInitialMetadata(this);
    const uint64_t handle = engine.WaitForRequest(1).handle;
    for (int i = 0; i < 48; ++i) engine.EmitToken(handle, FakeTokenizer::kFirstPiece);  // 64 KiB each
    engine.EmitToken(handle, '.', FinishReason::kLength);
    Await();
  }

  // Reads the rest.
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&response_, &status, this);
    Await();
    return status;
  }
  const v1::GenerateResponse& response() const { return response_; }

 private:
  void Await() {
    void* tag;
    bool ok;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
  }

  std::unique_ptr<v1::Generation::Stub> stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GenerateResponse>> call_;
};

TEST(GrpcServerTest, AUnaryAnswerIsWaitedForUntilItsClientHasReadIt) {
  FakeEngine engine(300, 4096);
  FakeTokenizer tokenizer({std::string(64 << 10, 'x')});
  ServerFixture fixture(engine, tokenizer, "unary_sent");
  fixture.server->SetFrontend(fixture.frontend.get());
  SlowUnaryCall call(fixture, engine);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
  EXPECT_FALSE(fixture.server->WaitStreamsSent(absl::InfinitePast()));
  EXPECT_TRUE(call.Finish().ok());
  EXPECT_EQ(call.response().sequences(0).text().size(), size_t{48 << 16} + 1);
  EXPECT_TRUE(fixture.server->WaitStreamsSent(absl::InfiniteFuture()));
}

TEST_F(StallTest, AClientThatDoesNotTakeItsUnaryAnswerIsCancelled) {
  SlowUnaryCall call(fixture_, engine_);
  EXPECT_TRUE(fixture_.server->WaitStreamsSent(absl::InfiniteFuture()));
  EXPECT_FALSE(call.Finish().ok());
  grpc::ClientContext context;
  v1::GetStatsResponse stats;
  ASSERT_TRUE(stub().GetStats(&context, {}, &stats).ok());
  EXPECT_EQ(stats.streams_stalled(), 1u);
}

TEST(GrpcServerTest, PromptLogprobsThatNobodyReadsHoldTheirRequest) {
  FakeEngine engine;
  FakeTokenizer tokenizer;
  ServerFixture fixture(engine, tokenizer, "prompt");
  fixture.server->SetFrontend(fixture.frontend.get());
  const auto stub = v1::Generation::NewStub(fixture.NewChannel(/*small_window=*/true));
  v1::GenerateRequest request;
  for (uint32_t i = 0; i < 20; ++i) request.mutable_token_ids()->add_ids(i);
  request.mutable_output()->set_prompt_logprobs(-1);
  grpc::ClientContext context;
  const auto reader = stub->GenerateStream(&context, request);
  const uint64_t handle = engine.WaitForRequest(1).handle;
  StepOutputs step;
  step.logprobs.resize(10'000);  // 160 kB a position
  const auto score = [&](int32_t begin, int32_t end) {
    step.prompt_scores.clear();
    for (int32_t position = begin; position < end; ++position)
      step.prompt_scores.push_back({handle, position, 0, static_cast<int32_t>(step.logprobs.size()), 1});
    engine.Emit(step);
  };
  score(1, 12);
  EXPECT_EQ(engine.WaitForHold(1), std::make_pair(handle, true));
  std::thread feeder([&] {
    EXPECT_EQ(engine.WaitForHold(2), std::make_pair(handle, false));
    score(12, 20);
    engine.EmitToken(handle, '.', FinishReason::kLength);
  });
  int positions = 0;
  for (v1::GenerateResponse response; reader->Read(&response);) positions += response.prompt().logprobs_size();
  EXPECT_TRUE(reader->Finish().ok());
  feeder.join();
  EXPECT_EQ(positions, 20);
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

}  // namespace
}  // namespace quire
