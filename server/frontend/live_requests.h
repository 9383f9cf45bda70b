#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/base/mutex.h"
#include "server/frontend/output_sink.h"
#include "server/frontend/request_stream.h"
#include "server/frontend/token_memory.h"

namespace quire {

// One request between Generate and the engine's last word about it.
struct LiveRequest {
  uint64_t handle = 0;
  std::string request_id;
  std::shared_ptr<OutputSink> sink;
  absl::Time arrival;
  // Made by the tokenizer thread before the engine hears of the request; the detokenizer's own from then on.
  std::unique_ptr<RequestStream> stream;
  std::shared_ptr<TokenRecord> tokens;  // likewise; null until the prompt's ids are known
  bool sink_ended = false;              // the client has had its end; like `stream`
  bool touched = false;                 // by the step in the detokenizer's hands
  bool engine_ended = false;            // the engine has had its last word; like `stream`

  // Guarded by LiveRequests' mutex.
  EndCause cause = EndCause::kNone;
  bool submitted = false;
};

// All live requests, by handle and by the client's id. Any thread.
class LiveRequests {
 public:
  // kUnavailable after Close. The id is not the request's yet.
  absl::Status Add(const std::shared_ptr<LiveRequest>& live);
  // Makes the id the request's once no other live request has it whose client still reads. Waits for that until
  // `deadline`; kAlreadyExists then. Returns at once if the request has been ended.
  absl::Status ClaimId(const LiveRequest& live, absl::Time deadline);
  // Null if unknown.
  std::shared_ptr<LiveRequest> Find(uint64_t handle) const;
  // Handles of those ids that are live.
  std::vector<uint64_t> FindIds(absl::Span<const std::string> request_ids) const;
  std::vector<std::shared_ptr<LiveRequest>> All() const;

  // Notes why the request shall end (the first cause stays) and frees its id: nobody means this request by it any more.
  // True if the engine has it and must be told.
  bool End(uint64_t handle, EndCause cause);
  // Ends all at once, so that the id one of them gives up is none that another one, which waited for it, takes.
  void EndAll(EndCause cause);
  // The engine has the request now. True if it was ended meanwhile: the engine must be told.
  bool MarkSubmitted(LiveRequest& live);
  EndCause CauseOf(const LiveRequest& live) const;

  // The id may be used again; the handle stays.
  void ReleaseId(const LiveRequest& live);
  void Remove(const LiveRequest& live);

  // Nothing is added any more.
  void Close();
  bool closed() const;

  int64_t size() const;
  // Blocks until empty or until `deadline`; true if empty.
  bool WaitEmpty(absl::Time deadline) const;

 private:
  bool IdIsFreeLocked(const std::string& request_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseIdLocked(const LiveRequest& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<uint64_t, std::shared_ptr<LiveRequest>> by_handle_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, uint64_t> by_id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace quire
