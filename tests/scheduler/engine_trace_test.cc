// Schedule traces of engines: what the file says, the replay makes again.

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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
using testing::StepGate;
using State = ScheduleTraceStatus::State;

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

// --- Traces that begin while the engine runs

// An engine in whose directory for traces there is nothing. Steps pass `gate_`, time stands at `now_`.
class RunningTraceTest : public EngineTraceTest {
 protected:
  RunningTraceTest() {
    folder_ = options_.schedule_trace_path + ".folder";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    options_.schedule_trace_path.clear();
    options_.schedule_trace_dir = folder_;
    options_.num_kv_events = 1000;
    options_.on_schedule_trace_end = [this](const std::string& problem) { problems_.push_back(problem); };
  }
  ~RunningTraceTest() override {
    if (engine_ != nullptr) engine_->Stop();
    std::filesystem::remove_all(folder_);
  }

  void MakeEngine(bool late = false) {
    sim_.config = config_;
    auto sim = CreateSimRunner(sim_);
    ASSERT_TRUE(sim.ok()) << sim.status();
    RunnerHooks hooks;
    hooks.before_step = [this](int64_t step, const ForwardBatch&) {
      gate_.Pass(step);
      return absl::OkStatus();
    };
    std::unique_ptr<ModelRunner> runner = std::make_unique<HookedRunner>(*std::move(sim), hooks);
    if (late) runner = std::make_unique<LateRunner>(std::move(runner));
    EngineClock clock;
    clock.now = [this] { return absl::FromUnixSeconds(now_); };
    auto engine = CreateEngineWithRunner(options_, config_, std::move(runner), clock);
    ASSERT_TRUE(engine.ok()) << engine.status();
    collector_.reset();  // reads from the engine before
    engine_ = *std::move(engine);
    collector_ = std::make_unique<OutputCollector>(*engine_, 1);
    engine_->Start();
  }

  void OnEngine(const std::function<void(BlockManager&)>& body) {
    std::latch done(1);
    ASSERT_EQ(engine_->Post([&](BlockManager& blocks) {
      body(blocks);
      done.count_down();
    }),
              absl::OkStatus());
    done.wait();
  }
  absl::Status StartTrace(const std::string& name, int64_t max_bytes = 0) {
    auto file = engine_->CreateTraceFile(name, max_bytes);
    if (!file.ok()) return file.status();
    absl::Status status;
    OnEngine([&](BlockManager&) { status = engine_->StartScheduleTrace(*std::move(file), absl::Seconds(30)); });
    return status;
  }
  absl::Status StopTrace() {
    absl::Status status;
    OnEngine([&](BlockManager&) { status = engine_->StopScheduleTrace(); });
    return status;
  }
  ScheduleTraceStatus Status() {
    ScheduleTraceStatus status;
    OnEngine([&](BlockManager&) { status = engine_->GetScheduleTrace(); });
    return status;
  }
  // What is there once the file is complete.
  ScheduleTraceStatus StoppedStatus() {
    ScheduleTraceStatus status = Status();
    while (status.state == State::kStopping) status = Status();
    return status;
  }
  void Submit(uint64_t handle) { ASSERT_EQ(engine_->Submit(Request(random_, handle)), absl::OkStatus()); }
  void ServeMore(int count) {
    for (int i = 0; i < count; ++i) Submit(++num_served_);
    ASSERT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
    // The engine thread may still be on its way to sleep.
    OnEngine([](BlockManager&) {});
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  bool FolderIsEmpty() const { return std::filesystem::is_empty(folder_); }

  std::string folder_;
  StepGate gate_{INT64_MAX};
  std::atomic<int64_t> now_ = 1'000'000;
  std::mt19937 random_{5};
  uint64_t num_served_ = 0;
  std::vector<std::string> problems_;  // engine thread, until Stop
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<OutputCollector> collector_;
};

TEST_F(RunningTraceTest, EachOfSeveralIsReproducedAndCountersGoOn) {
  options_.tenant_kv_quota = 0.5;
  for (const bool late : {false, true}) {
    MakeEngine(late);
    ServeMore(10);
    for (int i = 0; i < 3; ++i) {
      const EngineStats before = engine_->GetStats();
      const std::string name = absl::StrCat("trace-", late, i);
      ASSERT_EQ(StartTrace(name), absl::OkStatus());
      ServeMore(10);
      const ScheduleTraceStatus recording = Status();
      EXPECT_EQ(recording.state, State::kRecording) << recording.problem;
      EXPECT_EQ(recording.file, Path(name));
      EXPECT_GT(recording.records, 20);
      ASSERT_EQ(StopTrace(), absl::OkStatus());
      const ScheduleTraceStatus stopped = StoppedStatus();
      EXPECT_EQ(stopped.state, State::kStopped);
      EXPECT_EQ(stopped.problem, "");
      const EngineStats after = engine_->GetStats();
      EXPECT_EQ(after.requests_finished, before.requests_finished + 10);
      EXPECT_GT(after.generation_tokens, before.generation_tokens);
      EXPECT_GE(after.surplus_tokens, before.surplus_tokens);
      ServeMore(5);  // not recorded

      const std::string trace = ReadAll(Path(name));
      EXPECT_EQ(static_cast<int64_t>(trace.size()), stopped.bytes);
      struct stat info = {};
      ASSERT_EQ(stat(Path(name).c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0600u);
      const auto report = VerifyTrace(trace);
      ASSERT_EQ(report.status(), absl::OkStatus());
      EXPECT_TRUE(report->verified()) << report->damage << report->broken
                                      << (report->difference ? report->difference->ToString() : "");
      EXPECT_EQ(report->end, TraceEnd::kStopped);
      EXPECT_EQ(report->steps, after.steps - before.steps);
      EXPECT_GT(report->steps, 20);
      EXPECT_EQ(engine_->CheckInvariants(), absl::OkStatus());
    }
    // Sequences that end by eos have a row in the step that overlaps.
    EXPECT_EQ(engine_->GetStats().surplus_tokens > 0, late);
    engine_->Stop();
  }
  EXPECT_TRUE(problems_.empty());
}

TEST_F(RunningTraceTest, TheCacheStartsAnewAndSubscribersAreTold) {
  MakeEngine();
  ServeMore(10);
  int64_t before = 0;
  OnEngine([&](BlockManager& blocks) {
    before = blocks.events().next();
    EXPECT_GT(blocks.stats().cached, 0);
  });
  EXPECT_GT(before, 0);
  ASSERT_EQ(StartTrace("a"), absl::OkStatus());
  OnEngine([&](BlockManager& blocks) {
    EXPECT_EQ(blocks.stats().cached, 0);
    ASSERT_EQ(blocks.events().next(), before + 1);
    EXPECT_EQ(blocks.events().first(), 0);
    EXPECT_EQ(blocks.events().Get(before).kind, KvEvent::Kind::kCleared);
    EXPECT_EQ(blocks.events().Get(before - 1).kind, KvEvent::Kind::kStored);
    EXPECT_FALSE(blocks.events().Get(before - 1).tokens.empty());
  });
  ServeMore(10);
  OnEngine([&](BlockManager& blocks) { EXPECT_GT(blocks.events().next(), before + 10); });
}

TEST_F(RunningTraceTest, WaitsUntilNoRequestLives) {
  gate_.OpenUntil(3);
  MakeEngine();
  Submit(1);
  gate_.AwaitStep(3);
  auto file = engine_->CreateTraceFile("a", 0);
  ASSERT_TRUE(file.ok()) << file.status();
  std::latch asked(1);
  ASSERT_EQ(engine_->Post([&](BlockManager&) {
    EXPECT_EQ(engine_->StartScheduleTrace(*std::move(file), absl::Seconds(30)), absl::OkStatus());
    EXPECT_EQ(engine_->GetScheduleTrace().state, State::kPending);
    asked.count_down();
  }),
            absl::OkStatus());
  engine_->SetHeld(1, true);  // a held one lives too
  gate_.OpenUntil(INT64_MAX);
  asked.wait();
  EXPECT_EQ(Status().state, State::kPending);
  EXPECT_EQ(StartTrace("b").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(Path("b")));
  engine_->SetHeld(1, false);
  ASSERT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  OnEngine([](BlockManager&) {});
  EXPECT_EQ(Status().state, State::kRecording);
  EXPECT_EQ(StartTrace("b").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(Path("b")));
}

TEST_F(RunningTraceTest, GivesUpWhenRequestsLiveForTooLong) {
  gate_.OpenUntil(3);
  MakeEngine();
  Submit(1);
  gate_.AwaitStep(3);
  engine_->SetHeld(1, true);
  auto file = engine_->CreateTraceFile("a", 0);
  ASSERT_TRUE(file.ok()) << file.status();
  gate_.OpenUntil(INT64_MAX);
  OnEngine([&](BlockManager&) {
    EXPECT_EQ(engine_->StartScheduleTrace(*std::move(file), absl::Seconds(30)), absl::OkStatus());
  });
  EXPECT_EQ(Status().state, State::kPending);
  now_ += 31;
  OnEngine([](BlockManager&) {});
  const ScheduleTraceStatus status = Status();
  EXPECT_EQ(status.state, State::kNone);
  EXPECT_NE(status.problem.find("did not begin"), std::string::npos) << status.problem;
  EXPECT_TRUE(FolderIsEmpty());
  engine_->SetHeld(1, false);
  ASSERT_TRUE(engine_->WaitIdle(absl::InfiniteFuture()));
  EXPECT_EQ(StartTrace("a"), absl::OkStatus());
}

TEST_F(RunningTraceTest, AStopEndsTheWaitAndLeavesNoFile) {
  MakeEngine();
  EXPECT_EQ(StopTrace().code(), absl::StatusCode::kFailedPrecondition);
  OnEngine([&](BlockManager&) {
    auto file = engine_->CreateTraceFile("a", 0);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(engine_->StartScheduleTrace(*std::move(file), absl::Seconds(30)), absl::OkStatus());
    EXPECT_EQ(engine_->StopScheduleTrace(), absl::OkStatus());
    EXPECT_EQ(engine_->GetScheduleTrace().state, State::kNone);
    EXPECT_EQ(engine_->StopScheduleTrace().code(), absl::StatusCode::kFailedPrecondition);
  });
  EXPECT_TRUE(FolderIsEmpty());
}

TEST_F(RunningTraceTest, FilesStayInTheirDirectoryAndOverwriteNothing) {
  MakeEngine();
  const std::string bad_names[] = {"",
                                   ".",
                                   "..",
                                   "../a",
                                   "/tmp/a",
                                   "a/b",
                                   ".hidden",
                                   std::string("a\0b", 3),
                                   "a b",
                                   "a\nb",
                                   "\xc3\xa4",
                                   "a\\b",
                                   std::string(129, 'a')};
  for (const std::string& name : bad_names)
    EXPECT_EQ(engine_->CreateTraceFile(name, 0).status().code(), absl::StatusCode::kInvalidArgument) << name;
  for (const int64_t max_bytes : {int64_t{-1}, int64_t{1}, int64_t{4095}, (int64_t{1} << 30) + 1, INT64_MAX})
    EXPECT_EQ(engine_->CreateTraceFile("a", max_bytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(FolderIsEmpty());

  std::ofstream(Path("there")) << "text";
  std::filesystem::create_symlink("there", Path("link"));
  std::filesystem::create_symlink("nowhere", Path("dangling"));
  std::filesystem::create_directory(Path("directory"));
  for (const std::string name : {"there", "link", "dangling", "directory"})
    EXPECT_EQ(StartTrace(name).code(), absl::StatusCode::kAlreadyExists) << name;
  EXPECT_EQ(ReadAll(Path("there")), "text");
  EXPECT_FALSE(std::filesystem::exists(Path("nowhere")));
  EXPECT_EQ(StartTrace(std::string(128, 'a')), absl::OkStatus());
}

TEST_F(RunningTraceTest, EndsAtItsOwnLimitAndCanBeFollowedByAnother) {
  MakeEngine();
  ASSERT_EQ(StartTrace("a", 4096), absl::OkStatus());
  ServeMore(30);
  const ScheduleTraceStatus ended = Status();
  EXPECT_EQ(ended.state, State::kEnded);
  EXPECT_NE(ended.problem.find("limit of 4096 bytes"), std::string::npos) << ended.problem;
  EXPECT_GT(ended.lost_records, 0);
  EXPECT_EQ(StartTrace("b").code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(StopTrace(), absl::OkStatus());
  EXPECT_EQ(StoppedStatus().problem, ended.problem);
  EXPECT_LE(std::filesystem::file_size(Path("a")), 4096u);
  const auto report = VerifyTrace(ReadAll(Path("a")));
  ASSERT_EQ(report.status(), absl::OkStatus());
  EXPECT_TRUE(report->verified());
  EXPECT_EQ(StartTrace("b"), absl::OkStatus());
  engine_->Stop();
  EXPECT_EQ(problems_, std::vector<std::string>{ended.problem});
}

TEST_F(RunningTraceTest, WithoutADirectoryThereIsNone) {
  options_.schedule_trace_dir.clear();
  MakeEngine();
  EXPECT_EQ(StartTrace("a").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(RunningTraceTest, ADirectoryThatIsNoneIsRefused) {
  for (const std::string& directory : {Path("missing"), std::string("/dev/null")}) {
    options_.schedule_trace_dir = directory;
    sim_.config = config_;
    auto sim = CreateSimRunner(sim_);
    ASSERT_TRUE(sim.ok()) << sim.status();
    const absl::Status status = CreateEngineWithRunner(options_, config_, *std::move(sim)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find(directory), absl::string_view::npos);
  }
}

// --- Files that cannot be written

TEST_F(RunningTraceTest, AFullDiskEndsTheTraceOnceAndServingGoesOn) {
  struct stat before = {}, after = {};
  if (stat("/dev/full", &before) != 0) GTEST_SKIP() << "there is no /dev/full here";
  options_.schedule_trace_path = "/dev/full";
  MakeEngine();
  while (Status().state == State::kRecording) ServeMore(1);
  ServeMore(10);
  const ScheduleTraceStatus status = Status();
  EXPECT_EQ(status.state, State::kEnded);
  EXPECT_NE(status.problem.find("/dev/full cannot be written: No space left on device"), std::string::npos)
      << status.problem;
  EXPECT_EQ(status.bytes, 0);
  EXPECT_GT(status.lost_records, 0);
  EXPECT_EQ(engine_->GetStats().requests_finished, static_cast<int64_t>(num_served_));
  // The next one may go elsewhere.
  ASSERT_EQ(StopTrace(), absl::OkStatus());
  EXPECT_EQ(StoppedStatus().problem, status.problem);
  ASSERT_EQ(StartTrace("a"), absl::OkStatus());
  ServeMore(3);
  engine_->Stop();
  EXPECT_EQ(problems_, std::vector<std::string>{status.problem});
  EXPECT_TRUE(VerifyTrace(ReadAll(Path("a")))->verified());
  // A device is not ours to change.
  ASSERT_EQ(stat("/dev/full", &after), 0);
  EXPECT_EQ(before.st_mode, after.st_mode);
}

}  // namespace
}  // namespace quire
