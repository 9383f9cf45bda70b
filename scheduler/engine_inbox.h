#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "scheduler/request.h"

namespace quire {

// What the engine thread takes out of its inbox at once. Reused: the vectors keep their capacity.
struct EngineMessages {
  struct AbortMessage {
    uint64_t handle = 0;
    int32_t sequence_index = kWholeRequest;
  };
  static constexpr int32_t kWholeRequest = -1;
  struct HoldMessage {
    uint64_t handle = 0;
    bool held = false;
  };

  std::vector<EngineRequest> requests;
  std::vector<HoldMessage> holds;            // after `requests` too; at most one for a handle
  std::vector<AbortMessage> aborts;          // to be applied after `requests`; each handle was live when it was posted
  std::vector<std::function<void()>> tasks;  // after everything else
  std::vector<std::function<bool()>> watchers;
  bool stop = false;
};

// The limits on what waits, for answers at the door.
struct QueueLimits {
  int32_t max_requests = 0;
  int64_t max_tokens = 0;                              // of prompts
  absl::Duration max_wait = absl::InfiniteDuration();  // estimated, of a newcomer
};

// What waits in the scheduler, and how fast it starts (0: not known).
struct WaitingWork {
  int32_t requests = 0;
  int64_t tokens = 0;
  double starts_per_second = 0, start_tokens_per_second = 0;
};

// Queue Q2: the one way into the engine thread. Bounded at both ends: requests by the limits on waiting ones, aborts
// because each live sequence is aborted at most once, holds because the latest word replaces one not yet taken. It also
// knows which requests live and whether anything is to do, so that every answer at the door is given under one lock.
//
// Thread rule: functions under "engine thread" belong to it; all others are for any thread.
class EngineInbox {
 public:
  explicit EngineInbox(const QueueLimits& limits) : limits_(limits) {}

  // kUnavailable when draining or stopped, kAlreadyExists for a live handle, kResourceExhausted naming limit and value,
  // with the payload kRetryMsPayload (engine.h): when there will be room at the rate at which requests start.
  absl::Status PostRequest(EngineRequest request);
  // Ignored unless the handle lives and the sequence exists and was not aborted before.
  void PostAbort(uint64_t handle, int32_t sequence_index);
  // Ignored unless the handle lives.
  void PostHold(uint64_t handle, bool held);
  // False if the engine thread takes no messages (any more): nothing was posted. Else the task runs on it, once.
  bool PostTask(std::function<void()> task);
  // The same for what runs until it returns true.
  bool PostWatcher(std::function<bool()> watcher);
  void PostStop();
  void BeginDrain();
  // True once nothing waits, runs or is being handed over; false at `deadline`.
  bool WaitIdle(absl::Time deadline);

  int32_t queued_requests() const;
  int64_t queued_tokens() const;

  // --- engine thread

  // Messages are taken from now on.
  void Open();
  // Takes everything. Waits until there is something, at most until `until`.
  void Take(absl::Time until, EngineMessages* messages);
  // What waits in the scheduler now, for the limits at the door.
  void SetWaiting(const WaitingWork& work);
  // The last events of these requests have been written.
  void Finish(absl::Span<const uint64_t> handles);
  // Every request that was taken or waits here and has not finished.
  std::vector<uint64_t> LiveHandles() const;
  // No messages are taken any more: posting answers as stopped. Gives back the tasks that were not taken.
  std::vector<std::function<void()>> Close();

 private:
  struct LiveRequest {
    int32_t num_sequences = 0;
    uint64_t aborted_sequences = 0;  // bit i: sequence i
    bool aborted = false;
  };

  // Whether a request with `tokens` of prompt may wait too.
  absl::Status CheckRoom(int64_t tokens) const;

  const QueueLimits limits_;

  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable posted_, idle_;
  EngineMessages pending_;
  int64_t pending_tokens_ = 0;  // prompt tokens of pending_.requests
  WaitingWork scheduler_;       // what waits there or is on the way there
  absl::flat_hash_map<uint64_t, LiveRequest> live_;
  bool open_ = false;  // the engine thread takes messages
  bool draining_ = false;
  bool stopped_ = false;
};

}  // namespace quire
