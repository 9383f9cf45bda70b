#include "scheduler/engine.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/engine_with_runner.h"
#include "tests/scheduler/engine_test_util.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::HookedRunner;
using testing::OutputCollector;
using testing::RunnerHooks;
using testing::StepGate;

constexpr int32_t kVocabSize = 1000;

// An engine on the simulated model, with its reader.
class EngineTest : public ::testing::Test {
 protected:
  EngineTest() {
    options_.num_output_shards = 2;
    options_.scheduler.max_num_seqs = 8;
    options_.scheduler.max_num_batched_tokens = 64;
    config_.vocab_size = kVocabSize;
    config_.max_position_embeddings = 512;
    sim_.num_kv_blocks = 65;
    sim_.block_size = 16;
    sim_.time_scale = 0;
  }
  ~EngineTest() override {
    gate_.Open();
    if (engine_ != nullptr) engine_->Stop();
  }

  // Makes the engine and reads its outputs. Does not start it.
  void Create(bool with_reader = true) {
    sim_.config = config_;
    auto sim = CreateSimRunner(sim_);
    ASSERT_TRUE(sim.ok()) << sim.status();
    RunnerHooks hooks = hooks_;
    hooks.before_step = [this](int64_t step, const ForwardBatch& batch) {
      gate_.Pass(step);
      return hooks_.before_step ? hooks_.before_step(step, batch) : absl::OkStatus();
    };
    auto engine =
        CreateEngineWithRunner(options_, config_, std::make_unique<HookedRunner>(*std::move(sim), hooks), clock_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    if (with_reader) collector_ = std::make_unique<OutputCollector>(*engine_, options_.num_output_shards);
  }
  void Start() {
    Create();
    engine_->Start();
  }
  // Ends the engine and gives everything that it said.
  std::map<uint64_t, OutputCollector::Request> StopAndRead() {
    engine_->Stop();
    collector_->Join();
    return collector_->requests();
  }

  EngineRequest Request(uint64_t handle, int prompt_len, int max_tokens, int n = 1) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < prompt_len; ++i) prompt.push_back(static_cast<int32_t>((handle * 31 + i * 17) % kVocabSize));
    SamplingParams params;
    params.n = n;
    params.max_tokens = max_tokens;
    params.seed = handle;
    EngineRequest request = MakeEngineRequest(std::move(prompt), params, sim_.block_size, KeyContext());
    request.handle = handle;
    request.arrival = absl::UnixEpoch();
    return request;
  }

  EngineOptions options_;
  ModelConfig config_;
  SimRunnerOptions sim_;
  RunnerHooks hooks_;
  EngineClock clock_;
  StepGate gate_{INT64_MAX};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OutputCollector> collector_;
};

TEST_F(EngineTest, RequestsFinishWithOneFinalEventEach) {
  Start();
  for (uint64_t handle = 1; handle <= 40; ++handle) {
    ASSERT_TRUE(engine_->Submit(Request(handle, 1 + handle * 7 % 100, 20, 1 + handle % 3)).ok());
  }
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  const EngineStats stats = engine_->GetStats();
  EXPECT_EQ(stats.requests_finished, 40);
  EXPECT_EQ(stats.requests_waiting, 0);
  EXPECT_EQ(stats.requests_running, 0);
  EXPECT_EQ(stats.kv_blocks_active, 0);
  EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  const auto requests = StopAndRead();
  ASSERT_EQ(requests.size(), 40u);
  int64_t tokens = 0;
  for (const auto& [handle, request] : requests) {
    EXPECT_EQ(request.num_final_events, 1);
    EXPECT_EQ(request.num_events_after_the_last, 0);
    ASSERT_EQ(request.sequences.size(), 1 + handle % 3);
    for (const auto& [index, sequence] : request.sequences) {
      EXPECT_EQ(sequence.tokens.size(), 20u);
      EXPECT_EQ(sequence.last.finish_reason, FinishReason::kLength);
      tokens += static_cast<int64_t>(sequence.tokens.size());
    }
  }
  EXPECT_EQ(stats.generation_tokens, tokens);
}

TEST_F(EngineTest, StepTimesAddUp) {
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 20)).ok());
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  const EngineStats::StepSeconds seconds = engine_->GetStats().total_step_seconds;
  EXPECT_GT(seconds.total, 0);
  EXPECT_GT(seconds.scheduling, 0);
  EXPECT_NEAR(seconds.linear + seconds.attention + seconds.sampling + seconds.scheduling + seconds.rest, seconds.total,
              1e-9 + seconds.total * 1e-6);
}

TEST_F(EngineTest, InfoDescribesRunnerAndSizes) {
  options_.max_model_len = 300;
  options_.seed = 77;
  Create();
  EXPECT_EQ(engine_->info().max_model_len, 300);
  EXPECT_EQ(engine_->info().block_size, 16);
  EXPECT_EQ(engine_->info().num_kv_blocks, 64);
  EXPECT_EQ(engine_->info().device, "sim");
  EXPECT_EQ(engine_->info().key_context.process_seed, 77u);
}

TEST_F(EngineTest, StopBeforeStartEndsWhatWasSubmitted) {
  Create();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 20)).ok());
  ASSERT_TRUE(engine_->Submit(Request(2, 10, 20)).ok());
  const auto requests = StopAndRead();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests.at(1).last.finish_reason, FinishReason::kAborted);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(EngineTest, StopIsIdempotentAndEndsSubmission) {
  Start();
  engine_->Stop();
  engine_->Stop();
  engine_->Start();  // does nothing any more
  EXPECT_EQ(engine_->Submit(Request(1, 10, 20)).code(), absl::StatusCode::kUnavailable);
  engine_->Abort(1);
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(EngineTest, StopDuringWorkAbortsWhatIsLeft) {
  gate_.OpenUntil(5);
  Start();
  for (uint64_t handle = 1; handle <= 20; ++handle) ASSERT_TRUE(engine_->Submit(Request(handle, 30, 400)).ok());
  gate_.AwaitStep(5);
  std::thread stopper([&] { engine_->Stop(); });
  gate_.Open();
  stopper.join();
  const auto requests = StopAndRead();
  ASSERT_EQ(requests.size(), 20u);
  for (const auto& [handle, request] : requests) {
    EXPECT_EQ(request.num_final_events, 1);
    EXPECT_EQ(request.num_events_after_the_last, 0);
  }
  EXPECT_EQ(engine_->GetStats().kv_blocks_active, 0);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
}

TEST_F(EngineTest, DestructionWithWorkAndWithoutReaderIsSafe) {
  Create(/*with_reader=*/false);
  engine_->Start();
  for (uint64_t handle = 1; handle <= 10; ++handle) ASSERT_TRUE(engine_->Submit(Request(handle, 30, 400)).ok());
  // Nobody reads: the engine ends up waiting for a slot.
  while (engine_->GetStats().output_queue_waits == 0) std::this_thread::yield();
  engine_.reset();
}

TEST_F(EngineTest, ASlowReaderStopsTheEngineAndLosesNothing) {
  options_.num_output_shards = 1;
  Create(/*with_reader=*/false);
  engine_->Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 100)).ok());
  while (engine_->GetStats().output_queue_waits == 0) std::this_thread::yield();
  EXPECT_EQ(engine_->GetStats().steps, 5) << "4 slots and the step that waits";
  OutputCollector reader(*engine_, 1);
  EXPECT_EQ(reader.Await(1).sequences.at(0).tokens.size(), 100u);
  engine_->Stop();
}

TEST_F(EngineTest, StopGivesALateReaderEveryFinalEvent) {
  Create(/*with_reader=*/false);
  engine_->Start();
  for (uint64_t handle = 1; handle <= 10; ++handle) ASSERT_TRUE(engine_->Submit(Request(handle, 30, 400)).ok());
  while (engine_->GetStats().output_queue_waits == 0) std::this_thread::yield();
  engine_->Stop();
  collector_ = std::make_unique<OutputCollector>(*engine_, options_.num_output_shards);
  const auto requests = StopAndRead();
  ASSERT_EQ(requests.size(), 10u);
  for (const auto& [handle, request] : requests) EXPECT_EQ(request.num_final_events, 1);
}

TEST_F(EngineTest, AbortWhileQueued) {
  gate_.OpenUntil(1);
  options_.scheduler.max_num_seqs = 1;
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 5)).ok());
  gate_.AwaitStep(1);
  ASSERT_TRUE(engine_->Submit(Request(2, 10, 5)).ok());
  engine_->Abort(2);
  gate_.Open();
  const auto request = collector_->Await(2);
  EXPECT_EQ(request.last.finish_reason, FinishReason::kAborted);
  EXPECT_EQ(request.last.first_step, 0) << "no plan ever held it";
  EXPECT_EQ(collector_->Await(1).last.finish_reason, FinishReason::kLength);
}

// The abort comes while step `step` is in flight. It is the last that holds the request.
TEST_F(EngineTest, AbortInEachPhaseTakesEffectWithinAStep) {
  // A prompt of 200 tokens at 64 a step: steps 1 .. 3 are parts of it, 4 gives the first token.
  for (const int64_t step : {1, 2, 3, 4, 5, 9}) {
    gate_.OpenUntil(step);
    Start();
    ASSERT_TRUE(engine_->Submit(Request(1, 200, 100)).ok());
    gate_.AwaitStep(step);
    engine_->Abort(1);
    gate_.Open();
    const auto request = collector_->Await(1);
    EXPECT_EQ(request.last.finish_reason, FinishReason::kAborted) << "step " << step;
    EXPECT_EQ(request.last.last_step, step);
    EXPECT_EQ(request.sequences.at(0).tokens.size(), step < 4 ? 0u : static_cast<size_t>(step - 3));
    EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
    EXPECT_EQ(engine_->GetStats().steps, step) << "nothing else was to do";
    EXPECT_EQ(engine_->GetStats().kv_blocks_active, 0);
    EXPECT_TRUE(engine_->CheckInvariants().ok());
    engine_->Abort(1);  // finished: ignored
    EXPECT_EQ(StopAndRead().at(1).num_final_events, 1);
  }
}

TEST_F(EngineTest, AbortSequenceEndsOneAndLeavesTheOthers) {
  gate_.OpenUntil(6);
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 20, 30, 3)).ok());
  gate_.AwaitStep(6);
  engine_->AbortSequence(1, 1);
  engine_->AbortSequence(1, 7);   // has none
  engine_->AbortSequence(1, -1);  // is none
  gate_.Open();
  const auto request = collector_->Await(1);
  EXPECT_EQ(request.sequences.at(0).tokens.size(), 30u);
  EXPECT_EQ(request.sequences.at(1).last.finish_reason, FinishReason::kAborted);
  EXPECT_LE(request.sequences.at(1).tokens.size(), 6u) << "step 6 was the last that held it";
  EXPECT_EQ(request.sequences.at(2).tokens.size(), 30u);
  EXPECT_EQ(request.num_final_events, 1);
}

TEST_F(EngineTest, WatchersRunAfterEachStepUntilTheyAreDone) {
  Create();
  EXPECT_EQ(engine_->Watch([](const BlockManager&) { return true; }).code(), absl::StatusCode::kUnavailable);
  engine_->Start();
  std::atomic<int> patient = 0, done = 0;
  ASSERT_TRUE(engine_->Watch([&](const BlockManager& blocks) { return ++patient, blocks.stats().cached > 0; }).ok());
  ASSERT_TRUE(engine_->Watch([&](const BlockManager&) { return ++done == 2; }).ok());
  ASSERT_TRUE(engine_->Submit(Request(1, 40, 20)).ok());
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  ASSERT_TRUE(engine_->CheckInvariants().ok());  // the last turn is over
  EXPECT_EQ(done, 2);
  EXPECT_GE(patient, 20) << "with each step; blocks of a running request are active, not cached";
  const int seen = patient;
  ASSERT_TRUE(engine_->CheckInvariants().ok());
  EXPECT_EQ(patient, seen);
  auto token = std::make_shared<int>();
  ASSERT_TRUE(engine_->Watch([token](const BlockManager&) { return false; }).ok());
  engine_->Stop();
  EXPECT_EQ(token.use_count(), 1) << "an engine that has ended keeps no watcher";
}

TEST_F(EngineTest, AHeldRequestWaitsAndWakesTheEngineWhenItGoesOn) {
  gate_.OpenUntil(5);
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 20, 30)).ok());
  gate_.AwaitStep(5);
  engine_->SetHeld(1, true);
  engine_->SetHeld(7, true);  // nobody
  ASSERT_TRUE(engine_->Submit(Request(2, 20, 5)).ok());
  gate_.Open();
  EXPECT_EQ(collector_->Await(2).sequences.at(0).tokens.size(), 5u);
  collector_->AwaitTokens(1, 5);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  EXPECT_EQ(engine_->GetStats().requests_waiting, 0);
  EXPECT_EQ(engine_->GetStats().kv_blocks_active, 0);
  EXPECT_EQ(collector_->requests().at(1).sequences.at(0).tokens.size(), 5u) << "step 5 was the last that held it";
  engine_->SetHeld(1, false);
  EXPECT_EQ(collector_->Await(1).sequences.at(0).tokens.size(), 30u);
}

TEST_F(EngineTest, DrainRefusesNewWorkAndFinishesTheRest) {
  gate_.OpenUntil(2);
  options_.scheduler.max_num_seqs = 2;
  Start();
  for (uint64_t handle = 1; handle <= 6; ++handle) ASSERT_TRUE(engine_->Submit(Request(handle, 20, 10)).ok());
  gate_.AwaitStep(2);
  engine_->BeginDrain();
  EXPECT_EQ(engine_->Submit(Request(7, 10, 5)).code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(engine_->WaitIdle(absl::UnixEpoch())) << "a deadline in the past";
  gate_.Open();
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  const auto requests = StopAndRead();
  ASSERT_EQ(requests.size(), 6u);
  for (const auto& [handle, request] : requests) EXPECT_EQ(request.last.finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, QueueLimitsNameLimitAndValue) {
  gate_.OpenUntil(1);
  options_.scheduler.max_num_seqs = 1;
  options_.max_queued_requests = 2;
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 5)).ok());
  gate_.AwaitStep(1);  // running: waits no more
  EXPECT_TRUE(engine_->Submit(Request(2, 10, 5)).ok());
  EXPECT_TRUE(engine_->Submit(Request(3, 10, 5)).ok());
  EXPECT_EQ(engine_->GetStats().requests_waiting, 2);
  EXPECT_EQ(engine_->GetStats().waiting_prompt_tokens, 20);
  const absl::Status full = engine_->Submit(Request(4, 10, 5));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("max_queued_requests is 2"));
  gate_.Open();
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_TRUE(engine_->Submit(Request(4, 10, 5)).ok());
  EXPECT_EQ(collector_->Await(4).last.finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, WhatNeverFitsIsRefusedWithBothLengths) {
  Create();
  const absl::Status status = engine_->Submit(Request(1, 512, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("512"));
  const absl::Status longer = engine_->Submit(Request(2, 600, 1));
  EXPECT_THAT(std::string(longer.message()), AllOf(HasSubstr("600"), HasSubstr("512")));
}

TEST_F(EngineTest, DeadlinesEndQueuedAndRunningRequests) {
  std::atomic<int64_t> seconds = 0;
  clock_.now = [&] { return absl::FromUnixSeconds(seconds.load()); };
  options_.scheduler.max_num_seqs = 1;
  gate_.OpenUntil(4);
  Start();
  for (uint64_t handle : {1, 2, 3}) {
    EngineRequest request = Request(handle, 10, 20);
    if (handle < 3) request.deadline = absl::FromUnixSeconds(100);
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  }
  gate_.AwaitStep(4);
  seconds = 101;
  gate_.Open();
  for (uint64_t handle : {1, 2}) {
    const auto request = collector_->Await(handle);
    EXPECT_EQ(request.last.finish_reason, FinishReason::kError);
    EXPECT_EQ(request.last.error.code(), absl::StatusCode::kDeadlineExceeded) << request.last.error;
    EXPECT_EQ(request.last.last_step, handle == 1 ? 4 : 0);
  }
  EXPECT_EQ(collector_->Await(3).sequences.at(0).tokens.size(), 20u);
  engine_->Stop();  // the clock ends here
}

// The engine has nothing else to do. A deadline of this clock is past by the system's: the engine looks again and
// again.
TEST_F(EngineTest, AHeldRequestMeetsItsDeadline) {
  std::atomic<int64_t> seconds = 0;
  clock_.now = [&] { return absl::FromUnixSeconds(seconds.load()); };
  gate_.OpenUntil(5);
  Start();
  EngineRequest request = Request(1, 20, 30);
  request.deadline = absl::FromUnixSeconds(100);
  ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  gate_.AwaitStep(5);
  engine_->SetHeld(1, true);
  gate_.Open();
  collector_->AwaitTokens(1, 5);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  EXPECT_EQ(engine_->GetStats().requests_failed, 0);
  seconds = 100;
  const auto ended = collector_->Await(1);
  EXPECT_EQ(ended.last.error.code(), absl::StatusCode::kDeadlineExceeded) << ended.last.error;
  EXPECT_EQ(ended.sequences.at(0).tokens.size(), 5u);
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  engine_->Stop();  // the clock ends here
}

TEST_F(EngineTest, BadLogitsFailOneRequestOnly) {
  constexpr int32_t kPoison = 999;
  hooks_.after_step = [](const ForwardBatch& batch, StepResult& result) {
    for (size_t i = 0; i < result.samples.size(); ++i) {
      if (batch.token_ids[batch.samples[i].logits_row] == kPoison) {
        result.samples[i] = {.token_id = -1, .bad_logits = true};
      }
    }
  };
  Start();
  for (uint64_t handle = 1; handle <= 5; ++handle) {
    EngineRequest request = Request(handle, 10, 20);
    if (handle == 3) {
      request.prompt_ids.back() = kPoison;
      request = MakeEngineRequest(request.prompt_ids, request.params, sim_.block_size, KeyContext());
      request.handle = 3;
    }
    ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  }
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  const auto requests = StopAndRead();
  for (const auto& [handle, request] : requests) {
    if (handle == 3) {
      EXPECT_EQ(request.last.finish_reason, FinishReason::kError);
      EXPECT_EQ(request.last.error.code(), absl::StatusCode::kFailedPrecondition) << request.last.error;
    } else {
      EXPECT_EQ(request.sequences.at(0).tokens.size(), 20u);
    }
  }
}

TEST_F(EngineTest, AFailedStepFailsItsRequestsAndNoOther) {
  options_.scheduler.max_num_seqs = 2;
  hooks_.before_step = [](int64_t step, const ForwardBatch&) {
    return step == 5 ? absl::InternalError("device fell over") : absl::OkStatus();
  };
  gate_.OpenUntil(1);
  Start();
  for (uint64_t handle = 1; handle <= 4; ++handle) ASSERT_TRUE(engine_->Submit(Request(handle, 10, 20)).ok());
  gate_.Open();
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  const auto requests = StopAndRead();
  for (const auto& [handle, request] : requests) {
    if (handle <= 2) {
      EXPECT_EQ(request.last.error, absl::InternalError("device fell over"));
    } else {
      EXPECT_EQ(request.last.finish_reason, FinishReason::kLength);
    }
  }
  EXPECT_EQ(engine_->GetStats().requests_failed, 2);
}

TEST_F(EngineTest, AResultOfTheWrongSizeFailsTheStep) {
  hooks_.after_step = [](const ForwardBatch&, StepResult& result) { result.samples.clear(); };
  Start();
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 20)).ok());
  EXPECT_EQ(collector_->Await(1).last.error.code(), absl::StatusCode::kInternal);
}

TEST_F(EngineTest, AStepThatDoesNotEndMakesTheEngineUnhealthy) {
  std::atomic<int64_t> seconds = 0;
  clock_.steady = [&] { return absl::Seconds(seconds.load()); };
  options_.step_timeout = absl::Seconds(60);
  gate_.OpenUntil(3);
  Start();
  EXPECT_TRUE(engine_->IsHealthy());
  ASSERT_TRUE(engine_->Submit(Request(1, 10, 20)).ok());
  gate_.AwaitStep(3);
  seconds = 60;
  EXPECT_TRUE(engine_->IsHealthy());
  seconds = 61;
  EXPECT_FALSE(engine_->IsHealthy());
  EXPECT_FALSE(engine_->GetStats().healthy);
  gate_.Open();
  EXPECT_EQ(collector_->Await(1).last.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_TRUE(engine_->IsHealthy());
}

TEST_F(EngineTest, PromptScoresComeInOrder) {
  Start();
  EngineRequest request = Request(1, 150, 3);
  request.params.prompt_logprobs = 2;
  ASSERT_TRUE(engine_->Submit(std::move(request)).ok());
  const auto scored = collector_->Await(1).scored_positions;
  ASSERT_EQ(scored.size(), 149u);
  for (int i = 0; i < 149; ++i) EXPECT_EQ(scored[i], i + 1);
}

// Many threads submit and abort at once; every request still ends exactly once and nothing leaks.
TEST_F(EngineTest, ManyThreadsSubmitAndAbort) {
  constexpr int kThreads = 4, kRequests = 60;
  options_.max_queued_requests = kThreads * kRequests;
  Start();
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      for (int i = 0; i < kRequests; ++i) {
        const uint64_t handle = 1 + t * kRequests + i;
        ASSERT_TRUE(engine_->Submit(Request(handle, 1 + random() % 120, 1 + random() % 30, 1 + random() % 3)).ok());
        if (random() % 3 == 0) engine_->Abort(1 + random() % handle);
        if (random() % 3 == 0) engine_->AbortSequence(1 + random() % handle, random() % 3);
        engine_->GetStats();
        if (i % 20 == 0) {
          EXPECT_TRUE(engine_->CheckInvariants().ok());
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->GetStats().kv_blocks_active, 0);
  EXPECT_TRUE(engine_->CheckInvariants().ok());
  const auto requests = StopAndRead();
  EXPECT_EQ(requests.size(), static_cast<size_t>(kThreads * kRequests));
  for (const auto& [handle, request] : requests) {
    EXPECT_EQ(request.num_final_events, 1) << handle;
    EXPECT_EQ(request.num_events_after_the_last, 0) << handle;
  }
}

TEST(CreateEngineTest, NamesWhatIsWrong) {
  EngineOptions options;
  options.device = DeviceKind::kSim;
  options.model_path = "/nonexistent/model";
  EXPECT_EQ(CreateEngine(options).status().code(), absl::StatusCode::kNotFound);
  options.block_size = 3;
  EXPECT_EQ(CreateEngine(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace quire
