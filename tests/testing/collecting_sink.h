#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "server/frontend/output_sink.h"

namespace quire::testing {

// A client that remembers everything it was sent.
class CollectingSink final : public OutputSink {
 public:
  void Accepted(const std::string& request_id, uint64_t /*handle*/) override { id = request_id; }
  void Write(OutputDelta delta) override {
    MutexLock lock(&mutex_);
    ended_twice_ |= ended_;
    if (delta.prompt) {
      prompt_tokens = delta.prompt->prompt_tokens;
      seed = delta.prompt->seed;
      for (PositionLogprobs& position : delta.prompt->logprobs) prompt_logprobs.push_back(std::move(position));
    }
    for (SequenceDelta& news : delta.sequences) {
      SequenceDelta& all = sequences[news.index];
      all.index = news.index;
      all.text += news.text;
      all.reasoning += news.reasoning;
      all.tool_calls.insert(all.tool_calls.end(), news.tool_calls.begin(), news.tool_calls.end());
      all.token_ids.insert(all.token_ids.end(), news.token_ids.begin(), news.token_ids.end());
      all.logprobs.insert(all.logprobs.end(), news.logprobs.begin(), news.logprobs.end());
      if (news.finish) all.finish = news.finish;
      if (!news.text.empty()) texts.push_back(news.text);
    }
    if (delta.is_last()) {
      usage = *delta.usage;
      timings = delta.timings;
      ended_ = true;
    }
    ++num_writes_;
  }
  void Fail(const absl::Status& status_in) override {
    MutexLock lock(&mutex_);
    ended_twice_ |= ended_;
    status = status_in;
    ended_ = true;
  }
  bool IsGone() const override { return gone; }

  void WaitForEnd() {
    MutexLock lock(&mutex_);
    mutex_.Await([this] { return ended_; });
  }
  void WaitForWrites(int count) {
    MutexLock lock(&mutex_);
    const auto enough = [&] { return num_writes_ >= count; };
    mutex_.Await(enough);
  }
  bool ended_twice() {
    MutexLock lock(&mutex_);
    return ended_twice_;
  }

  // To be read after WaitForEnd.
  std::string id;
  int32_t prompt_tokens = -1;
  int64_t seed = 0;
  std::vector<PositionLogprobs> prompt_logprobs;
  std::map<int32_t, SequenceDelta> sequences;
  std::vector<std::string> texts;  // as they came
  Usage usage;
  Timings timings;
  absl::Status status;
  std::atomic<bool> gone = false;

 private:
  Mutex mutex_;
  bool ended_ = false, ended_twice_ = false;
  int num_writes_ = 0;
};

}  // namespace quire::testing
