// The engine around a runner that takes two steps and answers one late: nobody can tell from what comes out.

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/engine_with_runner.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/late_runner.h"

namespace quire {
namespace {

using testing::HookedRunner;
using testing::LateRunner;
using testing::OutputCollector;
using testing::RunnerHooks;
using testing::StepGate;

constexpr int32_t kSmallVocabSize = 40;  // small, so that an eos comes at every length

class EngineOverlapTest : public ::testing::Test {
 protected:
  EngineOverlapTest() {
    options_.scheduler.max_num_seqs = 8;
    options_.scheduler.max_num_batched_tokens = 64;
    config_.vocab_size = kSmallVocabSize;
    config_.max_position_embeddings = 512;
    config_.eos_token_ids = {3};
    sim_.num_kv_blocks = 65;
    sim_.block_size = 16;
    sim_.time_scale = 0;
  }
  ~EngineOverlapTest() override {
    gate_.Open();
    if (engine_ != nullptr) engine_->Stop();
  }

  void Start(bool late) {
    Make(late);
    if (engine_ != nullptr) engine_->Start();
  }
  // Not started yet: what is submitted now is all there at the first step, so that its plans do not depend on threads.
  void Make(bool late) {
    sim_.config = config_;
    auto sim = CreateSimRunner(sim_);
    ASSERT_TRUE(sim.ok()) << sim.status();
    RunnerHooks hooks;
    hooks.before_step = [this](int64_t step, const ForwardBatch&) {
      gate_.Pass(step);
      return step == failing_step_ ? absl::InternalError("the device fell over") : absl::OkStatus();
    };
    std::unique_ptr<ModelRunner> runner = std::make_unique<HookedRunner>(*std::move(sim), hooks);
    late_ = nullptr;
    if (late) {
      auto wrapped = std::make_unique<LateRunner>(std::move(runner));
      wrapped->fail_submit_at = refused_step_;
      late_ = wrapped.get();
      runner = std::move(wrapped);
    }
    auto engine = CreateEngineWithRunner(options_, config_, std::move(runner));
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    collector_ = std::make_unique<OutputCollector>(*engine_, options_.num_output_shards);
  }
  // Everything that the engine said; it is idle and all blocks are free or cached.
  std::map<uint64_t, OutputCollector::Request> Finish() {
    EXPECT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
    const EngineStats stats = engine_->GetStats();
    EXPECT_EQ(engine_->CheckInvariants(), absl::OkStatus());
    EXPECT_EQ(stats.kv_blocks_active, 0) << "idle means that surplus rows have run too";
    EXPECT_EQ(stats.kv_blocks_free + stats.kv_blocks_cached, stats.kv_blocks_total);
    engine_->Stop();
    collector_->Join();
    auto requests = collector_->requests();
    for (const auto& [handle, request] : requests) {
      EXPECT_EQ(request.num_final_events, 1) << handle;
      EXPECT_EQ(request.num_events_after_the_last, 0) << handle;
    }
    return requests;
  }

  EngineRequest Request(uint64_t handle, int prompt_len, int max_tokens, bool ignore_eos = false) {
    std::mt19937 random(static_cast<uint32_t>(handle));
    std::vector<int32_t> prompt;
    for (int i = 0; i < prompt_len; ++i)
      prompt.push_back(static_cast<int32_t>(i < 20 ? i : random() % kSmallVocabSize));
    SamplingParams params;
    params.n = handle % 5 == 0 ? 3 : 1;
    params.max_tokens = max_tokens;
    params.seed = handle;
    params.ignore_eos = ignore_eos;
    if (handle % 3 == 0) params.min_tokens = max_tokens / 2;
    if (handle % 7 == 0) params.prompt_logprobs = 0;
    EngineRequest request = MakeEngineRequest(std::move(prompt), params, sim_.block_size, KeyContext());
    request.handle = handle;
    return request;
  }
  std::map<uint64_t, OutputCollector::Request> RunLoad(bool late) {
    Make(late);
    for (uint64_t handle = 1; handle <= 100; ++handle) {
      const int prompt_len = static_cast<int>(1 + handle * 37 % 120), max_tokens = static_cast<int>(1 + handle % 90);
      EXPECT_EQ(engine_->Submit(Request(handle, prompt_len, max_tokens, handle % 2 == 0)), absl::OkStatus());
    }
    engine_->Start();
    return Finish();
  }
  void ExpectOverlapChangesNothing() {
    const auto alone = RunLoad(false);
    const auto overlapped = RunLoad(true);
    EXPECT_GT(late_->num_overlapped(), 100);
    EXPECT_GT(late_->num_late_tokens(), 500);
    ASSERT_EQ(alone.size(), 100u);
    ASSERT_EQ(overlapped.size(), 100u);
    for (const auto& [handle, request] : alone) {
      const OutputCollector::Request& other = overlapped.at(handle);
      EXPECT_EQ(request.scores, other.scores) << handle;
      for (const auto& [index, sequence] : request.sequences) {
        EXPECT_EQ(sequence.tokens, other.sequences.at(index).tokens) << handle << " " << index;
        EXPECT_EQ(sequence.last.finish_reason, other.sequences.at(index).last.finish_reason);
      }
    }
  }

  EngineOptions options_;
  ModelConfig config_;
  SimRunnerOptions sim_;
  StepGate gate_{INT64_MAX};
  int64_t failing_step_ = 0, refused_step_ = 0;
  LateRunner* late_ = nullptr;  // the engine's
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OutputCollector> collector_;
};

TEST_F(EngineOverlapTest, TokensAreThoseOfOneStepAtATime) { ExpectOverlapChangesNothing(); }

TEST_F(EngineOverlapTest, TokensAreTheSameWithoutACacheToo) {
  options_.scheduler.enable_prefix_caching = false;
  ExpectOverlapChangesNothing();
}

TEST_F(EngineOverlapTest, TokensAreTheSameInASmallPool) {
  sim_.num_kv_blocks = 26;
  ExpectOverlapChangesNothing();
  EXPECT_GT(engine_->GetStats().preemptions, 0);
}

TEST_F(EngineOverlapTest, TokensAreTheSameWithLayerGroups) {
  sim_.group_windows = {0, 24};
  sim_.num_kv_blocks = 45;
  sim_.block_size = 8;
  config_.max_position_embeddings = 250;
  options_.scheduler.max_num_batched_tokens = 48;
  ExpectOverlapChangesNothing();
  EXPECT_GT(engine_->GetStats().preemptions, 0);
}

TEST_F(EngineOverlapTest, AbortsHoldsAndTasksComeInBetween) {
  Start(true);
  std::mt19937 random(1);
  for (uint64_t handle = 1; handle <= 60; ++handle) {
    ASSERT_EQ(engine_->Submit(Request(handle, 1 + static_cast<int>(random() % 100), 80, true)), absl::OkStatus());
    if (handle < 4) continue;
    const uint64_t other = 1 + random() % (handle - 1);
    switch (random() % 4) {
      case 0:
        engine_->Abort(other);
        break;
      case 1:
        engine_->AbortSequence(other, static_cast<int32_t>(random() % 3));
        break;
      case 2:
        engine_->SetHeld(other, true);
        collector_->AwaitTokens(handle, 1 + random() % 5);
        engine_->SetHeld(other, false);
        break;
      default:
        EXPECT_EQ(engine_->CheckInvariants(), absl::OkStatus());
    }
  }
  EXPECT_EQ(Finish().size(), 60u);
}

TEST_F(EngineOverlapTest, AFailedStepEndsItsRequestsAndNoOther) {
  failing_step_ = 5;
  gate_.OpenUntil(5);
  Start(true);
  ASSERT_EQ(engine_->Submit(Request(1, 10, 50, true)), absl::OkStatus());
  gate_.AwaitStep(5);
  ASSERT_EQ(engine_->Submit(Request(2, 10, 50, true)), absl::OkStatus());
  gate_.Open();
  const auto requests = Finish();
  EXPECT_EQ(requests.at(1).last.finish_reason, FinishReason::kError);
  EXPECT_EQ(requests.at(1).sequences.at(0).tokens.size(), 4u);
  EXPECT_EQ(requests.at(2).last.finish_reason, FinishReason::kLength);
  EXPECT_EQ(requests.at(2).sequences.at(0).tokens.size(), 50u);
}

TEST_F(EngineOverlapTest, ARefusedStepEndsItsRequestsAfterTheStepBeforeItHasRun) {
  refused_step_ = 5;
  Start(true);
  ASSERT_EQ(engine_->Submit(Request(1, 10, 50, true)), absl::OkStatus());
  collector_->Await(1);
  ASSERT_EQ(engine_->Submit(Request(2, 10, 50, true)), absl::OkStatus());
  const auto requests = Finish();
  EXPECT_EQ(requests.at(1).last.finish_reason, FinishReason::kError);
  EXPECT_EQ(requests.at(1).sequences.at(0).tokens.size(), 4u);
  EXPECT_EQ(requests.at(2).last.finish_reason, FinishReason::kLength);
}

TEST_F(EngineOverlapTest, StopEndsTheStepsInFlight) {
  gate_.OpenUntil(5);
  Start(true);
  for (uint64_t handle = 1; handle <= 20; ++handle) {
    ASSERT_EQ(engine_->Submit(Request(handle, 30, 300, true)), absl::OkStatus());
  }
  gate_.AwaitStep(5);
  std::thread stopper([&] { engine_->Stop(); });
  gate_.Open();
  stopper.join();
  EXPECT_EQ(Finish().size(), 20u);
}

// Each step of one sequence needs the token of the step before, and still two are in flight all the time.
TEST_F(EngineOverlapTest, ASingleSequenceOverlapsItself) {
  Start(true);
  ASSERT_EQ(engine_->Submit(Request(1, 10, 100, true)), absl::OkStatus());
  Finish();
  EXPECT_EQ(late_->num_late_tokens(), 99);
  EXPECT_EQ(late_->num_overlapped(), 99);
  EXPECT_EQ(engine_->GetStats().steps, 100);
}

}  // namespace
}  // namespace quire
