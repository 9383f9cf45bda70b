#include "server/frontend/live_requests.h"

#include "absl/strings/str_cat.h"
#include "server/frontend/errors.h"

namespace quire {

absl::Status LiveRequests::Add(const std::shared_ptr<LiveRequest>& live) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the server is draining and takes no new requests");
  by_handle_.emplace(live->handle, live);
  return absl::OkStatus();
}

absl::Status LiveRequests::ClaimId(const LiveRequest& live, absl::Time deadline) {
  MutexLock lock(&mutex_);
  const auto decided = [this, &live]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return live.cause != EndCause::kNone || IdIsFreeLocked(live.request_id);
  };
  if (!mutex_.AwaitWithDeadline(decided, deadline))
    return absl::AlreadyExistsError(absl::StrCat("request_id: '", live.request_id, "' is live"));
  if (live.cause == EndCause::kNone) by_id_.insert_or_assign(live.request_id, live.handle);
  return absl::OkStatus();
}

std::shared_ptr<LiveRequest> LiveRequests::Find(uint64_t handle) const {
  MutexLock lock(&mutex_);
  const auto found = by_handle_.find(handle);
  return found == by_handle_.end() ? nullptr : found->second;
}

std::vector<uint64_t> LiveRequests::FindIds(absl::Span<const std::string> request_ids) const {
  MutexLock lock(&mutex_);
  std::vector<uint64_t> handles;
  for (const std::string& id : request_ids) {
    if (const auto found = by_id_.find(id); found != by_id_.end()) handles.push_back(found->second);
  }
  return handles;
}

std::vector<std::shared_ptr<LiveRequest>> LiveRequests::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<LiveRequest>> all;
  for (const auto& [handle, live] : by_handle_) all.push_back(live);
  return all;
}

bool LiveRequests::End(uint64_t handle, EndCause cause) {
  MutexLock lock(&mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return false;
  LiveRequest& live = *found->second;
  if (live.cause == EndCause::kNone) live.cause = cause;
  ReleaseIdLocked(live);
  return live.submitted;
}

void LiveRequests::EndAll(EndCause cause) {
  MutexLock lock(&mutex_);
  for (const auto& [handle, live] : by_handle_) {
    if (live->cause == EndCause::kNone) live->cause = cause;
    ReleaseIdLocked(*live);
  }
}

bool LiveRequests::MarkSubmitted(LiveRequest& live) {
  MutexLock lock(&mutex_);
  live.submitted = true;
  return live.cause != EndCause::kNone;
}

EndCause LiveRequests::CauseOf(const LiveRequest& live) const {
  MutexLock lock(&mutex_);
  return live.cause;
}

void LiveRequests::ReleaseId(const LiveRequest& live) {
  MutexLock lock(&mutex_);
  ReleaseIdLocked(live);
}

void LiveRequests::Remove(const LiveRequest& live) {
  MutexLock lock(&mutex_);
  ReleaseIdLocked(live);
  by_handle_.erase(live.handle);
}

void LiveRequests::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
}

bool LiveRequests::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

int64_t LiveRequests::size() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(by_handle_.size());
}

bool LiveRequests::WaitEmpty(absl::Time deadline) const {
  MutexLock lock(&mutex_);
  const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return by_handle_.empty(); };
  return mutex_.AwaitWithDeadline(empty, deadline);
}

bool LiveRequests::IdIsFreeLocked(const std::string& request_id) const {
  const auto known = by_id_.find(request_id);
  return known == by_id_.end() || by_handle_.at(known->second)->sink->IsGone();
}

void LiveRequests::ReleaseIdLocked(const LiveRequest& live) {
  // Another request may carry the id by now.
  const auto found = by_id_.find(live.request_id);
  if (found != by_id_.end() && found->second == live.handle) by_id_.erase(found);
}

}  // namespace quire
