// A client's cancellation, seen from the scheduler: the real engine, with a gate in its runner for the test to hold a
// step under way.

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "scheduler/engine_with_runner.h"
#include "tests/scheduler/engine_test_util.h"
#include "tests/server/grpc_fixture.h"

namespace quire {
namespace {

using ::quire::testing::FakeTokenizer;
using ::quire::testing::FixtureOptions;
using ::quire::testing::HookedRunner;
using ::quire::testing::ServerFixture;
using ::quire::testing::StepGate;

// Passes everything on, and lets a test wait for an abort.
class AbortWatch final : public Engine {
 public:
  explicit AbortWatch(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // Blocks until the engine has been told to abort something.
  void AwaitAbort() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&aborted_));
  }

  void Abort(uint64_t handle) override {
    engine_->Abort(handle);
    absl::MutexLock lock(&mutex_);
    aborted_ = true;
  }
  void Start() override { engine_->Start(); }
  absl::Status Submit(EngineRequest request) override { return engine_->Submit(std::move(request)); }
  void AbortSequence(uint64_t handle, int32_t sequence) override { engine_->AbortSequence(handle, sequence); }
  void SetHeld(uint64_t handle, bool held) override { engine_->SetHeld(handle, held); }
  void BeginDrain() override { engine_->BeginDrain(); }
  bool WaitIdle(absl::Time deadline) override { return engine_->WaitIdle(deadline); }
  void Stop() override { engine_->Stop(); }
  StepOutputQueue& outputs(int32_t shard) override { return engine_->outputs(shard); }
  const EngineInfo& info() const override { return engine_->info(); }
  EngineStats GetStats() const override { return engine_->GetStats(); }
  bool IsHealthy() const override { return engine_->IsHealthy(); }
  absl::Status Post(Task task) override { return engine_->Post(std::move(task)); }
  absl::Status Watch(Watcher watcher) override { return engine_->Watch(std::move(watcher)); }
  absl::Status CheckInvariants() override { return engine_->CheckInvariants(); }

 private:
  const std::unique_ptr<Engine> engine_;
  absl::Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

std::unique_ptr<AbortWatch> MakeEngine(StepGate& gate) {
  SimRunnerOptions sim;
  sim.config.vocab_size = 258;
  sim.config.max_position_embeddings = 512;
  sim.num_kv_blocks = 65;
  sim.block_size = 16;
  sim.time_scale = 0;
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 64;
  testing::RunnerHooks hooks;
  hooks.before_step = [&gate](int64_t step, const ForwardBatch&) {
    gate.Pass(step);
    return absl::OkStatus();
  };
  auto runner = CreateSimRunner(sim);
  EXPECT_TRUE(runner.ok()) << runner.status();
  auto engine = CreateEngineWithRunner(options, sim.config, std::make_unique<HookedRunner>(*std::move(runner), hooks));
  EXPECT_TRUE(engine.ok()) << engine.status();
  (*engine)->Start();
  return std::make_unique<AbortWatch>(*std::move(engine));
}

v1::GenerateRequest Request(const std::string& id, size_t prompt_bytes, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_request_id(id);
  request.set_text(std::string(prompt_bytes, id[0]));
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// (whether the call is unary, the step that is under way when the client cancels)
class CancelTest : public ::testing::TestWithParam<std::tuple<bool, int64_t>> {};

TEST_P(CancelTest, NoPlanBehindTheOneUnderWayHasTheRequest) {
  const auto [unary, step] = GetParam();
  StepGate gate(1);
  const std::unique_ptr<AbortWatch> engine = MakeEngine(gate);
  const FakeTokenizer tokenizer;
  absl::Mutex mutex;
  std::map<std::string, RequestRecord> records;
  FixtureOptions options;
  options.frontend.on_finished = [&](const RequestRecord& record) {
    absl::MutexLock lock(&mutex);
    records[record.request_id] = record;
  };
  ServerFixture fixture(*engine, tokenizer, "cancel", options);
  fixture.server->SetFrontend(fixture.frontend.get());

  // The prompt takes steps 1 to 3, alone or beside the other request.
  grpc::ClientContext context, other_context;
  grpc::CompletionQueue queue;
  v1::GenerateResponse response;
  grpc::Status status;
  const v1::GenerateRequest request = Request("cancelled", 150, 300);
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> stream;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::GenerateResponse>> call;
  if (unary) {
    call = fixture.stub->AsyncGenerate(&context, request, &queue);
    call->Finish(&response, &status, nullptr);
  } else {
    stream = fixture.stub->GenerateStream(&context, request);
  }
  gate.AwaitStep(1);
  const auto other = fixture.stub->GenerateStream(&other_context, Request("other", 1, 20));
  while (engine->GetStats().requests_waiting == 0) std::this_thread::yield();
  gate.OpenUntil(step);
  gate.AwaitStep(step);
  EXPECT_EQ(engine->GetStats().steps, step - 1);

  context.TryCancel();
  engine->AwaitAbort();
  gate.Open();
  uint64_t last_step = 0;
  while (other->Read(&response)) last_step = response.timings().last_step();
  EXPECT_TRUE(other->Finish().ok());
  EXPECT_GT(last_step, static_cast<uint64_t>(step) + 1) << "plans without the request followed";
  if (unary) {
    void* tag;
    bool ok;
    ASSERT_TRUE(queue.Next(&tag, &ok));
  } else {
    status = stream->Finish();
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(fixture.frontend->WaitIdle(absl::InfiniteFuture()));
  absl::MutexLock lock(&mutex);
  EXPECT_EQ(records["cancelled"].code, absl::StatusCode::kCancelled);
  EXPECT_EQ(records["cancelled"].timings.last_step, step) << "steps counted when the client cancelled: " << step - 1;
  EXPECT_EQ(engine->GetStats().kv_blocks_active, 0);
}

// In the prompt, at its end, in the first and in later tokens.
INSTANTIATE_TEST_SUITE_P(Phases, CancelTest,
                         ::testing::Combine(::testing::Bool(), ::testing::Values<int64_t>(1, 2, 3, 4, 9)));

}  // namespace
}  // namespace quire
