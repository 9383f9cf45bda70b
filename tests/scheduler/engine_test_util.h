#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/model_runner.h"
#include "model/sim_runner.h"
#include "scheduler/engine.h"

namespace quire::testing {

// What a test may do to the steps of the simulated model. Called on the engine thread.
struct RunnerHooks {
  std::function<absl::Status(int64_t step, const ForwardBatch& batch)> before_step;  // a failure fails the step
  std::function<void(const ForwardBatch& batch, StepResult& result)> after_step;
};

// The simulated model with hooks around its steps, numbered 1, 2, ...
class HookedRunner : public ModelRunner {
 public:
  HookedRunner(std::unique_ptr<ModelRunner> runner, RunnerHooks hooks)
      : runner_(std::move(runner)), hooks_(std::move(hooks)) {}

  absl::Status Submit(const ForwardBatch& batch) override {
    batch_ = &batch;
    ++step_;
    if (hooks_.before_step) {
      if (absl::Status status = hooks_.before_step(step_, batch); !status.ok()) return status;
    }
    return runner_->Submit(batch);
  }
  absl::Status Wait(StepResult* result) override {
    absl::Status status = runner_->Wait(result);
    if (hooks_.after_step) hooks_.after_step(*batch_, *result);
    return status;
  }
  int32_t vocab_size() const override { return runner_->vocab_size(); }
  int32_t num_kv_blocks() const override { return runner_->num_kv_blocks(); }
  int32_t block_size() const override { return runner_->block_size(); }
  int32_t num_host_blocks() const override { return runner_->num_host_blocks(); }
  std::vector<int32_t> group_windows() const override { return runner_->group_windows(); }
  int64_t weight_bytes_per_step() const override { return runner_->weight_bytes_per_step(); }
  int64_t kv_bytes_per_token() const override { return runner_->kv_bytes_per_token(); }
  std::string Describe() const override { return runner_->Describe(); }

 private:
  std::unique_ptr<ModelRunner> runner_;
  RunnerHooks hooks_;
  const ForwardBatch* batch_ = nullptr;
  int64_t step_ = 0;
};

// Lets steps through until a given one, which waits in the runner until the test opens the gate.
class StepGate {
 public:
  explicit StepGate(int64_t closed_from) : closed_from_(closed_from) {}

  // Engine thread.
  void Pass(int64_t step) {
    std::unique_lock lock(mutex_);
    reached_ = step;
    changed_.notify_all();
    changed_.wait(lock, [&] { return step < closed_from_; });
  }
  // Returns once the step waits at the gate, or has passed.
  void AwaitStep(int64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= step; });
  }
  // Steps below `step` pass from now on.
  void OpenUntil(int64_t step) {
    std::lock_guard lock(mutex_);
    closed_from_ = step;
    changed_.notify_all();
  }
  void Open() { OpenUntil(INT64_MAX); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t closed_from_;
  int64_t reached_ = 0;
};

// Reads all output shards of an engine on threads of its own and keeps what came, by request.
class OutputCollector {
 public:
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;  // of the tokens, if asked for
    SequenceOutput last;          // event that ended it; finish_reason kNone: not ended
  };
  struct Request {
    std::map<int32_t, Sequence> sequences;
    std::vector<int32_t> scored_positions;
    std::vector<float> scores;          // of those positions
    int num_final_events = 0;           // with request_finished
    int num_events_after_the_last = 0;  // must stay 0
    SequenceOutput last;                // the latest event
  };

  OutputCollector(Engine& engine, int32_t num_shards) {
    for (int32_t shard = 0; shard < num_shards; ++shard) {
      threads_.emplace_back([this, &queue = engine.outputs(shard)] { Read(queue); });
    }
  }
  // The engine must have been stopped, or be stopped by another thread.
  ~OutputCollector() { Join(); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  // Blocks until the request has ended.
  Request Await(uint64_t handle) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_[handle].num_final_events > 0; });
    return requests_[handle];
  }
  // Blocks until sequence 0 of the request has this many tokens.
  void AwaitTokens(uint64_t handle, size_t num_tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return requests_[handle].sequences[0].tokens.size() >= num_tokens; });
  }
  std::map<uint64_t, Request> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void Read(StepOutputQueue& queue) {
    while (const StepOutputs* outputs = queue.Pop()) {
      {
        std::lock_guard lock(mutex_);
        for (const PromptScoreOutput& score : outputs->prompt_scores) {
          requests_[score.handle].scored_positions.push_back(score.position);
          requests_[score.handle].scores.push_back(outputs->logprobs[score.logprobs_begin].logprob);
        }
        for (const SequenceOutput& event : outputs->sequences) Add(event, outputs->logprobs);
      }
      queue.Release();
      changed_.notify_all();
    }
  }
  void Add(const SequenceOutput& event, const std::vector<TokenLogprob>& logprobs) {
    Request& request = requests_[event.handle];
    if (request.num_final_events > 0) ++request.num_events_after_the_last;
    Sequence& sequence = request.sequences[event.sequence_index];
    if (event.token_id >= 0) sequence.tokens.push_back(event.token_id);
    if (event.logprobs_count > 0) sequence.logprobs.push_back(logprobs[event.logprobs_begin].logprob);
    if (event.finish_reason != FinishReason::kNone) sequence.last = event;
    if (event.request_finished) ++request.num_final_events;
    request.last = event;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Request> requests_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace quire::testing
