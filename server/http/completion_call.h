#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "server/frontend/frontend.h"
#include "server/frontend/pending_output.h"
#include "server/http/completion_format.h"
#include "server/http/completion_request.h"
#include "server/http/http_message.h"

namespace quire {

// One request for completions on its way: each prompt is a request of the front end, and what they give becomes one
// answer, whole or as a stream of events. While a message is under way what comes is merged; a client that reads too
// slowly has its requests held. Keeps itself alive until it is answered. Any thread.
class CompletionCall final : public HttpListener, public std::enable_shared_from_this<CompletionCall> {
 public:
  // Takes the exchange over and answers it, also with a refusal. `frontend` outlives the call.
  static std::shared_ptr<CompletionCall> Start(std::shared_ptr<HttpExchange> exchange, Frontend& frontend,
                                               CompletionRequest request);

  // HttpListener.
  void OnSent() override ABSL_LOCKS_EXCLUDED(mutex_);
  void OnGone() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Says that the stream is still there if it has been silent for `interval`. Whole answers have no way to say so.
  void PingIfSilent(absl::Time now, absl::Duration interval) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Sink;
  // One prompt.
  struct Part {
    uint64_t handle = 0;  // 0: not accepted
    PendingOutput pending;
    PromptEcho echo;
    std::vector<ChoiceState> choices;  // once it is accepted
    bool held = false, ended = false;
    UsageCount usage;
  };

  CompletionCall(std::shared_ptr<HttpExchange> exchange, Frontend& frontend, CompletionRequest request);

  void Submit();
  // Of part `index`, by its sink.
  void Accepted(size_t index, uint64_t handle) ABSL_LOCKS_EXCLUDED(mutex_);
  void Add(size_t index, OutputDelta delta) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends everything with an error.
  void Fail(const absl::Status& problem) ABSL_LOCKS_EXCLUDED(mutex_);

  void SendPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateHold(Part& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The events of a message.
  std::string Events(Part& part, OutputDelta delta) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Event(Part& part, const SequenceDelta& sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerWhole() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginStream() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  UsageCount TotalUsage() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing more is sent. The handles that are still to be cancelled, without the lock.
  std::vector<uint64_t> Close() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Cancel(const std::vector<uint64_t>& handles);

  Frontend& frontend_;
  const std::shared_ptr<HttpExchange> exchange_;
  CompletionRequest request_;  // Submit moves out what goes to the front end
  const CompletionFormat format_;

  Mutex mutex_;
  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);
  int64_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all parts of a whole answer
  bool streaming_ ABSL_GUARDED_BY(mutex_) = false;     // the head of the stream has gone
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;       // a message is under way
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;      // the end is, or nobody reads it
  absl::Time last_sent_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<CompletionCall> self_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire
