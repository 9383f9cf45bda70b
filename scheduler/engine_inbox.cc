#include "scheduler/engine_inbox.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/engine.h"

namespace quire {
namespace {

// 0 if the rate is not known.
double SecondsFor(double amount, double per_second) { return per_second > 0 ? amount / per_second : 0; }

// kResourceExhausted with advice to come back after about `seconds`; 0: not known, then a second.
absl::Status RefuseFor(double seconds, const std::string& message) {
  const double advice = seconds > 0 ? std::clamp(seconds, 0.1, 60.0) : 1;
  absl::Status status = absl::ResourceExhaustedError(message);
  status.SetPayload(kRetryMsPayload, absl::Cord(absl::StrCat(static_cast<int64_t>(std::ceil(advice * 1000)))));
  return status;
}

}  // namespace

absl::Status EngineInbox::PostRequest(EngineRequest request) {
  const int64_t tokens = static_cast<int64_t>(request.prompt_ids.size());
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return absl::UnavailableError("the engine has stopped");
    if (draining_) return absl::UnavailableError("the engine is draining and takes no new requests");
    if (absl::Status room = CheckRoom(tokens); !room.ok()) return room;
    const bool inserted = live_.try_emplace(request.handle, LiveRequest{.num_sequences = request.params.n}).second;
    if (!inserted) return absl::AlreadyExistsError(absl::StrCat("handle ", request.handle, " is in use"));
    pending_tokens_ += tokens;
    pending_.requests.push_back(std::move(request));
  }
  posted_.notify_one();
  return absl::OkStatus();
}

absl::Status EngineInbox::CheckRoom(int64_t tokens) const {
  const int64_t queued = static_cast<int64_t>(pending_.requests.size()) + scheduler_.requests;
  if (queued >= limits_.max_requests) {
    return RefuseFor(SecondsFor(static_cast<double>(queued - limits_.max_requests + 1), scheduler_.starts_per_second),
                     absl::StrCat(queued, " requests wait already, max_queued_requests is ", limits_.max_requests));
  }
  const int64_t queued_tokens = pending_tokens_ + scheduler_.tokens;
  // A prompt above the limit by itself is taken when nothing else waits, else it could never run.
  if (queued_tokens > 0 && queued_tokens + tokens > limits_.max_tokens) {
    const int64_t excess = std::min(queued_tokens, queued_tokens + tokens - limits_.max_tokens);
    return RefuseFor(SecondsFor(static_cast<double>(excess), scheduler_.start_tokens_per_second),
                     absl::StrCat(queued_tokens, " prompt tokens wait already, ", tokens,
                                  " more exceed max_queued_tokens ", limits_.max_tokens));
  }
  const double wait = std::max(SecondsFor(static_cast<double>(queued), scheduler_.starts_per_second),
                               SecondsFor(static_cast<double>(queued_tokens), scheduler_.start_tokens_per_second));
  const double max_wait = absl::ToDoubleSeconds(limits_.max_wait);
  if (wait > max_wait) {
    return RefuseFor(wait - max_wait,
                     absl::StrFormat("a request would wait about %.3g s, max_queue_wait is %.3g s", wait, max_wait));
  }
  return absl::OkStatus();
}

void EngineInbox::PostAbort(uint64_t handle, int32_t sequence_index) {
  {
    std::lock_guard lock(mutex_);
    const auto live = live_.find(handle);
    if (live == live_.end() || live->second.aborted) return;
    if (sequence_index == EngineMessages::kWholeRequest) {
      live->second.aborted = true;
    } else {
      if (sequence_index < 0 || sequence_index >= live->second.num_sequences) return;
      const uint64_t bit = uint64_t{1} << (sequence_index % 64);
      if ((live->second.aborted_sequences & bit) != 0) return;
      live->second.aborted_sequences |= bit;
    }
    pending_.aborts.push_back({handle, sequence_index});
  }
  posted_.notify_one();
}

void EngineInbox::PostHold(uint64_t handle, bool held) {
  {
    std::lock_guard lock(mutex_);
    if (!live_.contains(handle)) return;
    const auto known =
        std::find_if(pending_.holds.begin(), pending_.holds.end(),
                     [handle](const EngineMessages::HoldMessage& hold) { return hold.handle == handle; });
    if (known != pending_.holds.end()) {
      known->held = held;
    } else {
      pending_.holds.push_back({handle, held});
    }
  }
  posted_.notify_one();
}

bool EngineInbox::PostTask(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (!open_) return false;
    pending_.tasks.push_back(std::move(task));
  }
  posted_.notify_one();
  return true;
}

bool EngineInbox::PostWatcher(std::function<bool()> watcher) {
  {
    std::lock_guard lock(mutex_);
    if (!open_) return false;
    pending_.watchers.push_back(std::move(watcher));
  }
  posted_.notify_one();
  return true;
}

void EngineInbox::PostStop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    pending_.stop = true;
  }
  posted_.notify_one();
}

void EngineInbox::BeginDrain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

bool EngineInbox::WaitIdle(absl::Time deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return live_.empty(); };
  if (deadline == absl::InfiniteFuture()) {
    idle_.wait(lock, idle);
    return true;
  }
  return idle_.wait_until(lock, absl::ToChronoTime(deadline), idle);
}

int32_t EngineInbox::queued_requests() const {
  std::lock_guard lock(mutex_);
  return static_cast<int32_t>(pending_.requests.size()) + scheduler_.requests;
}

int64_t EngineInbox::queued_tokens() const {
  std::lock_guard lock(mutex_);
  return pending_tokens_ + scheduler_.tokens;
}

void EngineInbox::Open() {
  std::lock_guard lock(mutex_);
  open_ = true;
}

void EngineInbox::Take(absl::Time until, EngineMessages* messages) {
  messages->requests.clear();
  messages->holds.clear();
  messages->aborts.clear();
  messages->tasks.clear();
  messages->watchers.clear();
  std::unique_lock lock(mutex_);
  const auto posted = [this] {
    return pending_.stop || !pending_.requests.empty() || !pending_.aborts.empty() || !pending_.holds.empty() ||
           !pending_.tasks.empty() || !pending_.watchers.empty();
  };
  if (until == absl::InfiniteFuture()) {
    posted_.wait(lock, posted);
  } else if (until != absl::InfinitePast()) {
    posted_.wait_until(lock, absl::ToChronoTime(until), posted);
  }
  scheduler_.requests += static_cast<int32_t>(pending_.requests.size());
  scheduler_.tokens += pending_tokens_;
  pending_tokens_ = 0;
  std::swap(*messages, pending_);
  pending_.stop = messages->stop;
}

void EngineInbox::SetWaiting(const WaitingWork& work) {
  std::lock_guard lock(mutex_);
  scheduler_ = work;
}

void EngineInbox::Finish(absl::Span<const uint64_t> handles) {
  bool empty = false;
  {
    std::lock_guard lock(mutex_);
    for (uint64_t handle : handles) live_.erase(handle);
    empty = live_.empty();
  }
  if (empty) idle_.notify_all();
}

std::vector<uint64_t> EngineInbox::LiveHandles() const {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> handles;
  for (const auto& [handle, live] : live_) handles.push_back(handle);
  return handles;
}

std::vector<std::function<void()>> EngineInbox::Close() {
  std::vector<std::function<void()>> left;
  {
    std::lock_guard lock(mutex_);
    open_ = false;
    stopped_ = true;
    live_.clear();
    left.swap(pending_.tasks);
    pending_.watchers.clear();
  }
  idle_.notify_all();
  return left;
}

}  // namespace quire
