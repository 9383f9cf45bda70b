#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "scheduler/engine.h"
#include "server/frontend/tokenizer_pool.h"

namespace quire {

// Events of the prefix cache, in order.
struct EventBatch {
  int64_t first = 0;            // number of the first of them, or of the event to come if there is none
  int64_t lost = 0;             // events before it that were asked for and are not kept any more
  std::vector<KvEvent> events;  // with tokens in `tokens`
  std::vector<int32_t> tokens;
};

// Who reads events. Calls come from threads of the front end, never from the engine's.
class EventReader {
 public:
  virtual ~EventReader() = default;
  // The answer to Read.
  virtual void OnEvents(const EventBatch& batch) = 0;
  // Nothing more comes: kOutOfRange, kUnavailable. May be called while OnEvents is, and several times.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// What happens to the blocks of the prefix cache, batch by batch, for readers that ask for one after the other. So a
// slow reader slows nobody down: the ring of EngineOptions::num_kv_events runs over it, and the next batch says how
// many events that has cost. No function blocks. Any thread.
class EventFeed {
 public:
  static constexpr int32_t kMaxReaders = 64, kMaxBatch = 256;

  // Both outlive this object. `answers` is where readers are called.
  EventFeed(Engine& engine, TokenizerPool& answers);

  // Tells one run of the server from the next: numbers count within it.
  uint64_t id() const { return id_; }

  // To be called before the first Read. kFailedPrecondition if nothing is recorded; kResourceExhausted beyond
  // kMaxReaders; kUnavailable after Stop.
  absl::Status Add(const std::shared_ptr<EventReader>& reader);
  void Remove(const EventReader* reader);

  // Tells the reader at most kMaxBatch events from number `from` on. `from` unset: those to come. The answer waits for
  // the first event, unless `at_once`. kOutOfRange, by OnEnd, if `from` is beyond the number of the event to come.
  // One Read at a time for each reader.
  void Read(const std::shared_ptr<EventReader>& reader, std::optional<int64_t> from, bool at_once);

  // After the engine has stopped: ends all readers with kUnavailable.
  void Stop();

 private:
  Engine& engine_;
  TokenizerPool& answers_;
  const uint64_t id_;
  Mutex mutex_;
  absl::flat_hash_map<const EventReader*, std::weak_ptr<EventReader>> readers_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace quire
