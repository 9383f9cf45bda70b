#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "block_manager/block.h"

namespace quire {

// A bounded memory of what is no longer, or not here, in the cache, so that a miss can be explained. Two direct-mapped
// tables: a newer entry takes the place of an older one, so an answer may be missing but is never wrong (up to equal
// 128-bit keys). Nothing is allocated after construction. Not thread-safe: the engine thread owns it.
class MissMemory {
 public:
  // `capacity` entries a table, rounded up to a power of two; 0: remembers nothing.
  explicit MissMemory(int32_t capacity);

  // The full block with this key was evicted or dropped.
  void Evicted(const BlockHash& key, absl::Time when);
  std::optional<absl::Time> WhenEvicted(const BlockHash& key) const;

  // A first block was stored under `root`; `contents` hashes its tokens alone.
  void StoredFirst(const BlockHash& contents, const BlockHash& root, int32_t tenant);
  // The same tenant has stored it, and lately under another root: another salt, adapter or set of weights. Other
  // tenants are not spoken of.
  bool HasOtherRoot(const BlockHash& contents, const BlockHash& root, int32_t tenant) const;

 private:
  struct EvictedKey {
    BlockHash key;
    absl::Time when = absl::InfiniteFuture();  // infinite future: empty
  };
  struct FirstBlock {
    BlockHash contents, root;
    int32_t tenant = -1;  // -1: empty
  };
  size_t Slot(const BlockHash& hash) const { return hash.high & (evicted_.size() - 1); }

  std::vector<EvictedKey> evicted_;
  std::vector<FirstBlock> firsts_;
};

}  // namespace quire
