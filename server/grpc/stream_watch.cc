#include "server/grpc/stream_watch.h"

#include <utility>
#include <vector>

namespace quire {

void StreamWatch::Add(const std::shared_ptr<Stallable>& stream) {
  absl::MutexLock lock(&mutex_);
  streams_.emplace(stream.get(), stream);
}

void StreamWatch::Remove(const Stallable* stream) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(stream);
}

bool StreamWatch::WaitEmpty(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto empty = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return streams_.empty(); };
  return mutex_.AwaitWithDeadline(absl::Condition(&empty), deadline);
}

void StreamWatch::CancelStalled(absl::Time now, absl::Duration stall_timeout) {
  // Not under the lock: a stream that ends meanwhile wants to remove itself.
  std::vector<std::shared_ptr<Stallable>> streams;
  {
    absl::MutexLock lock(&mutex_);
    streams.reserve(streams_.size());
    for (const auto& [address, weak] : streams_) {
      if (std::shared_ptr<Stallable> stream = weak.lock()) streams.push_back(std::move(stream));
    }
  }
  for (const std::shared_ptr<Stallable>& stream : streams) stream->CancelIfStalled(now, stall_timeout);
}

}  // namespace quire
