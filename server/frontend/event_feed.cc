#include "server/frontend/event_feed.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

uint64_t RandomId() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

absl::Status Stopped() { return RetryAfter(absl::UnavailableError("the server is shutting down"), absl::Seconds(1)); }

absl::StatusOr<EventBatch> Copy(const KvEventLog& log, int64_t from) {
  if (from < 0 || from > log.next()) {
    return absl::OutOfRangeError(absl::StrCat("from: ", from, " is beyond ", log.next(),
                                              ", the number of the event to come; was the server started anew?"));
  }
  EventBatch batch;
  batch.first = std::max(from, log.first());
  batch.lost = batch.first - from;
  const int64_t end = std::min(log.next(), batch.first + EventFeed::kMaxBatch);
  size_t num_tokens = 0;
  for (int64_t number = batch.first; number < end; ++number) {
    batch.events.push_back(log.Get(number));
    num_tokens += batch.events.back().tokens.size();
  }
  batch.tokens.reserve(num_tokens);  // spans into it stay valid
  for (KvEvent& event : batch.events) {
    const int32_t* const begin = batch.tokens.data() + batch.tokens.size();
    batch.tokens.insert(batch.tokens.end(), event.tokens.begin(), event.tokens.end());
    event.tokens = {begin, event.tokens.size()};
  }
  return batch;
}

}  // namespace

EventFeed::EventFeed(Engine& engine, TokenizerPool& answers) : engine_(engine), answers_(answers), id_(RandomId()) {}

absl::Status EventFeed::Add(const std::shared_ptr<EventReader>& reader) {
  const EngineInfo& info = engine_.info();
  if (!info.prefix_cache_enabled)
    return absl::FailedPreconditionError("the prefix cache is off: the server runs with --no-enable-prefix-caching");
  if (info.num_kv_events == 0)
    return absl::FailedPreconditionError("events are not recorded: the server runs without --kv-events");
  MutexLock lock(&mutex_);
  if (stopped_) return Stopped();
  if (static_cast<int32_t>(readers_.size()) >= kMaxReaders) {
    return RetryAfter(absl::ResourceExhaustedError(absl::StrCat(kMaxReaders, " subscribers to events are the limit")),
                      absl::Seconds(1));
  }
  readers_.emplace(reader.get(), reader);
  return absl::OkStatus();
}

void EventFeed::Remove(const EventReader* reader) {
  MutexLock lock(&mutex_);
  readers_.erase(reader);
}

void EventFeed::Read(const std::shared_ptr<EventReader>& reader, std::optional<int64_t> from, bool at_once) {
  const auto look = [this, weak = std::weak_ptr<EventReader>(reader), from, at_once](const BlockManager& blocks) {
    const std::shared_ptr<EventReader> to = weak.lock();
    if (to == nullptr) return true;
    const KvEventLog& log = blocks.events();
    const int64_t begin = from.value_or(log.next());
    if (begin == log.next() && !at_once) return false;
    const auto batch = std::make_shared<absl::StatusOr<EventBatch>>(Copy(log, begin));
    const absl::Status posted = answers_.Post(0, [to, batch] {
      if (batch->ok()) {
        to->OnEvents(**batch);
      } else {
        to->OnEnd(batch->status());
      }
    });
    QUIRE_CHECK(posted.ok());  // stopped after the engine only
    return true;
  };
  if (!engine_.Watch(look).ok()) reader->OnEnd(Stopped());
}

void EventFeed::Stop() {
  absl::flat_hash_map<const EventReader*, std::weak_ptr<EventReader>> readers;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    readers.swap(readers_);
  }
  for (const auto& [key, weak] : readers) {
    if (const std::shared_ptr<EventReader> reader = weak.lock()) reader->OnEnd(Stopped());
  }
}

}  // namespace quire
