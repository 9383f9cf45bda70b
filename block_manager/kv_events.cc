#include "block_manager/kv_events.h"

#include "kernels/base/check.h"

namespace quire {

KvEvent* KvEventLog::Add(KvEvent::Kind kind) {
  if (slots_.empty()) return nullptr;
  KvEvent& event = slots_[next_++ % static_cast<int64_t>(slots_.size())];
  event = {};
  event.kind = kind;
  return &event;
}

void KvEventLog::Stored(const BlockHash& key, const BlockHash& parent, absl::Span<const int32_t> tokens,
                        KvEvent::Tier tier) {
  QUIRE_DCHECK(static_cast<int32_t>(tokens.size()) == block_size_);
  KvEvent* const event = Add(KvEvent::Kind::kStored);
  if (event == nullptr) return;
  event->tier = tier;
  event->key = key;
  event->parent = parent;
  const auto kept = tokens_.begin() + (event - slots_.data()) * block_size_;
  std::copy(tokens.begin(), tokens.end(), kept);
  event->tokens = {&*kept, tokens.size()};
}

void KvEventLog::Removed(const BlockHash& key, KvEvent::Tier tier) {
  KvEvent* const event = Add(KvEvent::Kind::kRemoved);
  if (event == nullptr) return;
  event->tier = tier;
  event->key = key;
}

void KvEventLog::Cleared() { Add(KvEvent::Kind::kCleared); }

KvEvent KvEventLog::Get(int64_t number) const {
  QUIRE_CHECK(number >= first() && number < next_);
  return slots_[number % static_cast<int64_t>(slots_.size())];
}

}  // namespace quire
