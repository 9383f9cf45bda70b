#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "block_manager/block_manager.h"
#include "kernels/base/mutex.h"
#include "scheduler/engine.h"

namespace quire::testing {

// An engine that does what a test tells it: it keeps what it is sent, and the test emits each step's events. Only
// aborts are answered by itself, as the contract demands, unless the test wants to do that too.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(int32_t vocab_size = 300, int32_t max_model_len = 64) {
    info_.config.vocab_size = vocab_size;
    info_.config.architecture = "FakeForCausalLM";
    info_.config.eos_token_ids = {257};
    info_.device = "fake";
    info_.max_model_len = max_model_len;
    info_.block_size = 4;
    info_.num_kv_blocks = 100;
  }
  ~FakeEngine() override { Stop(); }

  EngineInfo& mutable_info() { return info_; }  // before the front end is made
  bool answers_aborts = true;

  // --- what the test looks at and does

  // Blocks until `count` requests have come; the latest of them.
  EngineRequest WaitForRequest(size_t count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return requests_.size() >= count; };
    mutex_.Await(enough);
    return requests_[count - 1];
  }
  void WaitForAborts(size_t count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return aborts_.size() >= count; };
    mutex_.Await(enough);
  }
  std::vector<std::pair<uint64_t, int32_t>> aborts() {  // sequence -1: the whole request
    MutexLock lock(&mutex_);
    return aborts_;
  }
  // Blocks until `count` calls of SetHeld have come; the latest of them.
  std::pair<uint64_t, bool> WaitForHold(size_t count) {
    MutexLock lock(&mutex_);
    mutex_.Await([&] { return holds_.size() >= count; });
    return holds_[count - 1];
  }
  void RefuseWith(absl::Status status) {
    MutexLock lock(&mutex_);
    refusal_ = std::move(status);
  }
  void SetHealthy(bool healthy) {
    MutexLock lock(&mutex_);
    healthy_ = healthy;
  }

  // One event as one step.
  void EmitToken(uint64_t handle, int32_t token, FinishReason reason = FinishReason::kNone, int32_t sequence = 0) {
    MutexLock lock(&mutex_);
    StepOutputs step;
    step.sequences.push_back(Event(handle, token, reason, sequence));
    Push(std::move(step));
  }
  void Emit(StepOutputs step) {
    MutexLock lock(&mutex_);
    for (SequenceOutput& output : step.sequences) output.request_finished = Account(output);
    Push(std::move(step));
  }
  static SequenceOutput MakeEvent(uint64_t handle, int32_t token, FinishReason reason, int32_t sequence) {
    SequenceOutput output;
    output.handle = handle;
    output.sequence_index = sequence;
    output.token_id = token;
    output.finish_reason = reason;
    if (reason == FinishReason::kStop) output.stop_token_id = token;
    output.stopped_by_eos = reason == FinishReason::kStop && token == 257;
    output.time = absl::Now();
    return output;
  }

  // --- Engine

  void Start() override {}
  absl::Status Submit(EngineRequest request) override {
    MutexLock lock(&mutex_);
    if (!refusal_.ok()) return refusal_;
    running_[request.handle] = std::vector<bool>(request.params.n, true);
    requests_.push_back(std::move(request));
    return absl::OkStatus();
  }
  void Abort(uint64_t handle) override {
    MutexLock lock(&mutex_);
    aborts_.emplace_back(handle, -1);
    if (answers_aborts) EndAll(handle);
  }
  void AbortSequence(uint64_t handle, int32_t sequence_index) override {
    MutexLock lock(&mutex_);
    aborts_.emplace_back(handle, sequence_index);
    if (!answers_aborts || !IsRunning(handle, sequence_index)) return;
    StepOutputs step;
    step.sequences.push_back(Event(handle, -1, FinishReason::kAborted, sequence_index));
    Push(std::move(step));
  }
  void SetHeld(uint64_t handle, bool held) override {
    MutexLock lock(&mutex_);
    holds_.emplace_back(handle, held);
  }
  void BeginDrain() override {}
  bool WaitIdle(absl::Time) override { return true; }
  void Stop() override {
    MutexLock lock(&mutex_);
    while (!running_.empty()) EndAll(running_.begin()->first);
    stopped_ = true;
  }
  StepOutputQueue& outputs(int32_t) override { return queue_; }
  const EngineInfo& info() const override { return info_; }
  EngineStats GetStats() const override {
    MutexLock lock(&mutex_);
    EngineStats stats;
    stats.requests_running = static_cast<int32_t>(running_.size());
    stats.healthy = healthy_;
    return stats;
  }
  bool IsHealthy() const override {
    MutexLock lock(&mutex_);
    return healthy_;
  }
  // At once, on the caller's thread.
  absl::Status Post(Task task) override {
    MutexLock lock(&mutex_);
    if (stopped_) return absl::UnavailableError("the engine does not run");
    task(blocks_);
    return absl::OkStatus();
  }
  // Once: nothing ever happens here.
  absl::Status Watch(Watcher watcher) override {
    return Post([watcher](const BlockManager& blocks) { watcher(blocks); });
  }
  absl::Status CheckInvariants() override { return absl::OkStatus(); }

 private:
  class Queue final : public StepOutputQueue {
   public:
    explicit Queue(FakeEngine& engine) : engine_(engine) {}
    const StepOutputs* Pop() override {
      MutexLock lock(&engine_.mutex_);
      const auto ready = [this] { return engine_.stopped_ || !engine_.steps_.empty(); };
      engine_.mutex_.Await(ready);
      return engine_.steps_.empty() ? nullptr : &engine_.steps_.front();
    }
    void Release() override {
      MutexLock lock(&engine_.mutex_);
      engine_.steps_.pop_front();
    }

   private:
    FakeEngine& engine_;
  };

  bool IsRunning(uint64_t handle, int32_t sequence) {
    const auto found = running_.find(handle);
    return found != running_.end() && found->second[sequence];
  }
  // Notes the end of a sequence; true if it was the last of its request.
  bool Account(const SequenceOutput& output) {
    const auto found = running_.find(output.handle);
    if (output.finish_reason == FinishReason::kNone || found == running_.end()) return false;
    found->second[output.sequence_index] = false;
    for (bool running : found->second) {
      if (running) return false;
    }
    running_.erase(found);
    return true;
  }
  SequenceOutput Event(uint64_t handle, int32_t token, FinishReason reason, int32_t sequence) {
    SequenceOutput output = MakeEvent(handle, token, reason, sequence);
    output.request_finished = Account(output);
    return output;
  }
  void EndAll(uint64_t handle) {
    const auto found = running_.find(handle);
    if (found == running_.end()) return;
    StepOutputs step;
    const std::vector<bool> running = found->second;
    for (size_t i = 0; i < running.size(); ++i) {
      if (running[i]) step.sequences.push_back(Event(handle, -1, FinishReason::kAborted, static_cast<int32_t>(i)));
    }
    Push(std::move(step));
  }
  void Push(StepOutputs step) { steps_.push_back(std::move(step)); }

  EngineInfo info_;
  mutable Mutex mutex_;
  std::deque<StepOutputs> steps_;
  std::vector<EngineRequest> requests_;
  std::map<uint64_t, std::vector<bool>> running_;
  std::vector<std::pair<uint64_t, int32_t>> aborts_;
  std::vector<std::pair<uint64_t, bool>> holds_;
  absl::Status refusal_;
  BlockManager blocks_{{.num_blocks = 101, .block_size = 4}};
  bool healthy_ = true;
  bool stopped_ = false;
  Queue queue_{*this};
};

}  // namespace quire::testing
