#include "block_manager/miss_memory.h"

#include <bit>

namespace quire {

MissMemory::MissMemory(int32_t capacity)
    : evicted_(capacity > 0 ? std::bit_ceil(static_cast<uint32_t>(capacity)) : 0), firsts_(evicted_.size()) {}

void MissMemory::Evicted(const BlockHash& key, absl::Time when) {
  if (!evicted_.empty()) evicted_[Slot(key)] = {key, when};
}

std::optional<absl::Time> MissMemory::WhenEvicted(const BlockHash& key) const {
  if (evicted_.empty()) return std::nullopt;
  const EvictedKey& slot = evicted_[Slot(key)];
  if (slot.key != key || slot.when == absl::InfiniteFuture()) return std::nullopt;
  return slot.when;
}

void MissMemory::StoredFirst(const BlockHash& contents, const BlockHash& root, int32_t tenant) {
  if (!firsts_.empty()) firsts_[Slot(contents)] = {contents, root, tenant};
}

bool MissMemory::HasOtherRoot(const BlockHash& contents, const BlockHash& root, int32_t tenant) const {
  if (firsts_.empty()) return false;
  const FirstBlock& slot = firsts_[Slot(contents)];
  return slot.tenant == tenant && slot.contents == contents && slot.root != root;
}

}  // namespace quire
