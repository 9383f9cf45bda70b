#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "block_manager/block.h"

namespace quire {

// What happened to the findable blocks, for routers that send requests where their prefix lies. Full blocks only: a key
// holds the process seed, weights, adapter, salt and tenant, so it says nothing to whoever cannot make it.
struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  enum class Tier : uint8_t { kDevice, kHost };

  Kind kind = Kind::kCleared;
  Tier tier = Tier::kDevice;
  BlockHash key;                     // unless kCleared
  BlockHash parent;                  // with kStored: the key of the block before, or the root hash
  absl::Span<const int32_t> tokens;  // with kStored: block_size of them
};

// The latest events, numbered 0, 1, 2, ... since the start, in a ring. A reader asks for the numbers it has not seen;
// those below first() are lost, and it can tell. Nothing is allocated after construction.
// Not thread-safe: the engine thread owns it.
class KvEventLog {
 public:
  // Keeps the latest `capacity` events; 0: none, and nothing is numbered.
  KvEventLog(int32_t capacity, int32_t block_size)
      : block_size_(block_size), slots_(capacity), tokens_(int64_t{capacity} * block_size) {}

  int64_t first() const { return std::max<int64_t>(0, next_ - static_cast<int64_t>(slots_.size())); }
  int64_t next() const { return next_; }  // of the event to come
  // first() <= number < next(). The tokens are valid until the next event.
  KvEvent Get(int64_t number) const;

  void Stored(const BlockHash& key, const BlockHash& parent, absl::Span<const int32_t> tokens,
              KvEvent::Tier tier = KvEvent::Tier::kDevice);
  void Removed(const BlockHash& key, KvEvent::Tier tier = KvEvent::Tier::kDevice);
  void Cleared();

 private:
  KvEvent* Add(KvEvent::Kind kind);  // null without capacity

  int32_t block_size_;
  std::vector<KvEvent> slots_;   // number % capacity
  std::vector<int32_t> tokens_;  // [capacity, block_size]
  int64_t next_ = 0;
};

}  // namespace quire
