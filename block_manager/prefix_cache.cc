#include "block_manager/prefix_cache.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace quire {

PrefixCache::PrefixCache(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      entries_(num_blocks),
      tokens_(new int32_t[int64_t{num_blocks} * block_size]),  // not cleared: pages are touched when first used
      slots_(std::bit_ceil(uint32_t(num_blocks)) * size_t{2}, kNullBlock),
      slot_mask_(static_cast<uint32_t>(slots_.size() - 1)) {
  QUIRE_CHECK(num_blocks >= 2 && block_size >= 1);
}

BlockId PrefixCache::Find(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens) const {
  QUIRE_DCHECK(static_cast<int32_t>(tokens.size()) == block_size_);
  for (uint32_t slot = Home(key); slots_[slot] != kNullBlock; slot = (slot + 1) & slot_mask_) {
    const BlockId block = slots_[slot];
    const Entry& entry = entries_[Index(block)];
    if (entry.key == key && entry.parent == parent && std::equal(tokens.begin(), tokens.end(), this->tokens(block))) {
      return block;
    }
  }
  return kNullBlock;
}

void PrefixCache::Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens,
                         BlockId block) {
  QUIRE_CHECK(block != kNullBlock && !Contains(block) && static_cast<int32_t>(tokens.size()) == block_size_);
  uint32_t slot = Home(key);
  while (slots_[slot] != kNullBlock) slot = (slot + 1) & slot_mask_;
  slots_[slot] = block;
  entries_[Index(block)] = {key, parent, next_serial_++};
  std::copy(tokens.begin(), tokens.end(), tokens_.get() + int64_t{Index(block)} * block_size_);
  ++size_;
}

uint32_t PrefixCache::SlotOf(BlockId block) const {
  uint32_t slot = Home(entries_[Index(block)].key);
  while (slots_[slot] != block) {
    QUIRE_CHECK(slots_[slot] != kNullBlock);
    slot = (slot + 1) & slot_mask_;
  }
  return slot;
}

void PrefixCache::Erase(BlockId block) {
  QUIRE_CHECK(Contains(block));
  // Instead of leaving a gap, later entries of the run move back if that brings them no further than their home
  // (Knuth, The Art of Computer Programming 3, 6.4, algorithm R).
  uint32_t gap = SlotOf(block);
  for (uint32_t slot = (gap + 1) & slot_mask_; slots_[slot] != kNullBlock; slot = (slot + 1) & slot_mask_) {
    const uint32_t home = Home(entries_[Index(slots_[slot])].key);
    const uint32_t from_home = (slot - home) & slot_mask_;
    const uint32_t from_gap = (slot - gap) & slot_mask_;
    if (from_home < from_gap) continue;
    slots_[gap] = slots_[slot];
    gap = slot;
  }
  slots_[gap] = kNullBlock;
  entries_[Index(block)].serial = 0;
  --size_;
}

absl::Status PrefixCache::CheckInvariants() const {
  int32_t entries = 0;
  for (int32_t i = 1; i < static_cast<int32_t>(entries_.size()); ++i) {
    const BlockId block{i};
    if (!Contains(block)) continue;
    ++entries;
    const Entry& entry = entries_[i];
    if (Find(entry.parent, entry.key, {tokens(block), static_cast<size_t>(block_size_)}) != block) {
      return absl::InternalError(absl::StrFormat("the entry of block %d is not found by its own contents", i));
    }
  }
  const auto used = static_cast<int32_t>(slots_.size() - std::count(slots_.begin(), slots_.end(), kNullBlock));
  if (entries != size_ || used != size_) {
    return absl::InternalError(absl::StrFormat("%d entries and %d used slots, %d counted", entries, used, size_));
  }
  return absl::OkStatus();
}

}  // namespace quire
