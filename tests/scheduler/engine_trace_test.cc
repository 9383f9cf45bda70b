// Schedule traces of engines: what the file says, the replay makes again.

#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/engine_with_runner.h"
#include "scheduler/trace/replay.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/testing/late_runner.h"

namespace quire {
namespace {

using testing::HookedRunner;
using testing::LateRunner;
using testing::OutputCollector;
using testing::RunnerHooks;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

class EngineTraceTest : public ::testing::Test {
 protected:
  EngineTraceTest() {
    options_.scheduler.max_num_seqs = 8;
    options_.scheduler.max_num_batched_tokens = 64;
    options_.schedule_trace_path =
        ::testing::TempDir() + "/engine_trace_test." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    config_.vocab_size = 40;
    config_.max_position_embeddings = 512;
    config_.eos_token_ids = {3};
    sim_.num_kv_blocks = 33;
    sim_.block_size = 16;
    sim_.time_scale = 0;
  }

  // Serves random requests with aborts, holds, failed steps and cache administration in between; the trace.
  std::string Serve(bool late) {
    sim_.config = config_;
    auto sim = CreateSimRunner(sim_);
    EXPECT_TRUE(sim.ok()) << sim.status();
    RunnerHooks hooks;
    hooks.before_step = [](int64_t step, const ForwardBatch&) {
      return step % 97 == 0 ? absl::InternalError("the device fell over") : absl::OkStatus();
    };
    std::unique_ptr<ModelRunner> runner = std::make_unique<HookedRunner>(*std::move(sim), hooks);
    if (late) runner = std::make_unique<LateRunner>(std::move(runner));
    auto engine = CreateEngineWithRunner(options_, config_, std::move(runner));
    EXPECT_TRUE(engine.ok()) << engine.status();
    if (!engine.ok()) return "";
    {
      OutputCollector collector(**engine, 1);
      (*engine)->Start();
      std::mt19937 random(late);
      for (uint64_t handle = 1; handle <= 80; ++handle) {
        EXPECT_EQ((*engine)->Submit(Request(random, handle)), absl::OkStatus());
        if (random() % 8 == 0) (*engine)->Abort(1 + random() % handle);
        if (random() % 8 == 0) (*engine)->SetHeld(handle, true);
        if (random() % 16 == 0) {
          EXPECT_EQ((*engine)->Post([](BlockManager& blocks) { blocks.DropAll(); }), absl::OkStatus());
        }
        (*engine)->SetHeld(handle, false);
        if (random() % 8 == 0) (void)(*engine)->WaitIdle(absl::InfiniteFuture());
      }
      EXPECT_TRUE((*engine)->WaitIdle(absl::InfiniteFuture()));
      (*engine)->Stop();
    }
    steps_ = (*engine)->GetStats().steps;
    lost_ = (*engine)->GetStats().trace_records_lost;
    return ReadAll(options_.schedule_trace_path);
  }

  EngineRequest Request(std::mt19937& random, uint64_t handle) {
    std::vector<int32_t> prompt(1 + random() % 150);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % 64 == 63 ? random() % 40 : i % 37);
    SamplingParams params;
    params.n = handle % 5 == 0 ? 3 : 1;
    params.max_tokens = static_cast<int32_t>(1 + random() % 60);
    params.seed = handle;
    EngineRequest request = MakeEngineRequest(std::move(prompt), params, sim_.block_size, {});
    request.handle = handle;
    return request;
  }

  void ExpectVerified(const std::string& trace) {
    const auto report = VerifyTrace(trace);
    ASSERT_EQ(report.status(), absl::OkStatus());
    EXPECT_TRUE(report->verified()) << report->damage << report->broken
                                    << (report->difference ? report->difference->ToString() : "");
    EXPECT_EQ(report->steps, steps_);
    EXPECT_GT(steps_, 100);
    EXPECT_EQ(lost_, 0);
  }

  EngineOptions options_;
  ModelConfig config_;
  SimRunnerOptions sim_;
  int64_t steps_ = 0, lost_ = 0;
};

TEST_F(EngineTraceTest, IsReproduced) { ExpectVerified(Serve(false)); }

TEST_F(EngineTraceTest, IsReproducedWithTwoStepsInFlight) { ExpectVerified(Serve(true)); }

TEST_F(EngineTraceTest, IsReproducedWithLayerGroups) {
  sim_.group_windows = {0, 40};
  sim_.num_kv_blocks = 65;
  ExpectVerified(Serve(false));
}

TEST_F(EngineTraceTest, EndsWhenItIsFullAndTheEngineGoesOn) {
  options_.schedule_trace_max_bytes = 8192;
  const std::string trace = Serve(false);
  EXPECT_LE(trace.size(), 8192u);
  EXPECT_GT(lost_, 100);
  const auto report = VerifyTrace(trace);
  ASSERT_EQ(report.status(), absl::OkStatus());
  EXPECT_TRUE(report->verified());
  EXPECT_EQ(report->end, TraceEnd::kFull);
  EXPECT_EQ(report->lost_records, lost_);
  EXPECT_GT(report->steps, 0);
  EXPECT_LT(report->steps, steps_);
}

TEST_F(EngineTraceTest, AFileThatCannotBeWrittenIsRefused) {
  options_.schedule_trace_path = ::testing::TempDir() + "/no/such/folder/trace";
  sim_.config = config_;
  auto sim = CreateSimRunner(sim_);
  ASSERT_TRUE(sim.ok()) << sim.status();
  const auto engine = CreateEngineWithRunner(options_, config_, *std::move(sim));
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace quire
