#include "block_manager/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"

namespace quire {
namespace {

auto Rank(const PrefixLink& link) {
  return std::make_tuple(static_cast<int32_t>(link.entry), link.id.low, link.id.high);
}

}  // namespace

bool PrefixCache::IsBefore(const Entry& entry, const PrefixLink& parent, absl::Span<const int32_t> tokens) const {
  if (entry.parent != parent) return Rank(entry.parent) < Rank(parent);
  const absl::Span<const int32_t> own = entry.tokens();
  const auto [mine, theirs] = std::mismatch(own.begin(), own.end(), tokens.begin(), tokens.end());
  if (theirs == tokens.end()) return false;
  return mine == own.end() || token_order_.Less(*mine, *theirs);
}

bool PrefixCache::Less::operator()(int32_t a, int32_t b) const {
  const Entry& other = cache->entries_[b];
  return cache->IsBefore(cache->entries_[a], other.parent, other.tokens());
}

PrefixCache::PrefixCache(int32_t num_blocks, int32_t block_size, const TokenPermutation& token_order)
    : block_size_(block_size),
      token_order_(token_order),
      entries_(num_blocks),
      entry_of_(num_blocks),
      tokens_(new int32_t[int64_t{num_blocks} * block_size]),  // not cleared: pages are touched when first used
      slots_(std::bit_ceil(uint32_t(num_blocks)) * size_t{2}, 0),
      slot_mask_(static_cast<uint32_t>(slots_.size() - 1)),
      order_(num_blocks, Less{this}) {
  QUIRE_CHECK(num_blocks >= 2 && block_size >= 1);
  for (int32_t i = 0; i < num_blocks; ++i) {
    entries_[i].block = BlockId{i};
    entries_[i].first_token = tokens_.get() + int64_t{i} * block_size;
    entry_of_[i] = i;
  }
}

BlockId PrefixCache::Find(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens) const {
  QUIRE_DCHECK(static_cast<int32_t>(tokens.size()) == block_size_);
  for (uint32_t slot = Home(key); slots_[slot] != 0; slot = (slot + 1) & slot_mask_) {
    const Entry& entry = entries_[slots_[slot]];
    if (entry.key == key && entry.parent == parent && std::equal(tokens.begin(), tokens.end(), entry.first_token)) {
      return entry.block;
    }
  }
  return kNullBlock;
}

int32_t PrefixCache::SharedTokens(int32_t index, const PrefixLink& parent, absl::Span<const int32_t> tokens) const {
  const Entry& entry = entries_[index];
  if (index == 0 || entry.parent != parent) return 0;
  const absl::Span<const int32_t> own = entry.tokens();
  return static_cast<int32_t>(std::mismatch(own.begin(), own.end(), tokens.begin(), tokens.end()).first - own.begin());
}

PrefixCache::Match PrefixCache::FindLongest(const PrefixLink& parent, absl::Span<const int32_t> tokens) const {
  const auto gap = order_.Locate([&](int32_t i) { return IsBefore(entries_[i], parent, tokens); });
  const int32_t before = SharedTokens(gap.last_before, parent, tokens);
  const int32_t after = SharedTokens(gap.first_after, parent, tokens);
  if (before == 0 && after == 0) return {};
  return after >= before ? Match{BlockAt(gap.first_after), after} : Match{BlockAt(gap.last_before), before};
}

BlockId PrefixCache::Insert(const PrefixLink& parent, const BlockHash& key, absl::Span<const int32_t> tokens,
                            BlockId block) {
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  QUIRE_CHECK(block != kNullBlock && !Contains(block) && num_tokens >= 1 && num_tokens <= block_size_);
  // What begins these tokens stands right before them: anything between would begin with it too.
  BlockId promoted = kNullBlock;
  const auto locate = [&] { return order_.Locate([&](int32_t i) { return IsBefore(entries_[i], parent, tokens); }); };
  auto gap = locate();
  QUIRE_DCHECK(SharedTokens(gap.first_after, parent, tokens) < num_tokens);
  const int32_t shared = SharedTokens(gap.last_before, parent, tokens);
  if (shared > 0 && shared == entries_[gap.last_before].num_tokens) {
    promoted = BlockAt(gap.last_before);
    Erase(promoted);
    gap = locate();
  }

  QUIRE_CHECK(IsAlive(parent));
  if (parent.entry != kNoEntry) ++entries_[Index(parent.entry)].num_children;
  const int32_t index = entry_of_[Index(block)];
  Entry& entry = entries_[index];
  entry.parent = parent;
  entry.num_children = 0;
  entry.num_tokens = num_tokens;
  entry.serial = next_serial_++;
  std::copy(tokens.begin(), tokens.end(), tokens_.get() + int64_t{index} * block_size_);
  order_.InsertAt(gap, index);
  ++size_;
  if (num_tokens == block_size_) {
    entry.key = key;
    uint32_t slot = Home(key);
    while (slots_[slot] != 0) slot = (slot + 1) & slot_mask_;
    slots_[slot] = index;
  }
  return promoted;
}

uint32_t PrefixCache::SlotOf(int32_t entry) const {
  uint32_t slot = Home(entries_[entry].key);
  while (slots_[slot] != entry) {
    QUIRE_CHECK(slots_[slot] != 0);
    slot = (slot + 1) & slot_mask_;
  }
  return slot;
}

void PrefixCache::Erase(BlockId block) {
  QUIRE_CHECK(Contains(block) && !has_children(block));
  const int32_t index = entry_of_[Index(block)];
  Entry& entry = entries_[index];
  if (entry.parent.entry != kNoEntry) --entries_[Index(entry.parent.entry)].num_children;
  if (entry.num_tokens == block_size_) EraseSlot(index);
  order_.Erase(index);
  entry.serial = 0;
  --size_;
}

void PrefixCache::Move(BlockId from, BlockId to) {
  QUIRE_CHECK(Contains(from) && !Contains(to));
  std::swap(entry_of_[Index(from)], entry_of_[Index(to)]);
  entries_[entry_of_[Index(from)]].block = from;
  entries_[entry_of_[Index(to)]].block = to;
}

void PrefixCache::EraseSlot(int32_t entry) {
  // Instead of leaving a gap, later entries of the run move back if that brings them no further than their home
  // (Knuth, The Art of Computer Programming 3, 6.4, algorithm R).
  uint32_t gap = SlotOf(entry);
  for (uint32_t slot = (gap + 1) & slot_mask_; slots_[slot] != 0; slot = (slot + 1) & slot_mask_) {
    const uint32_t home = Home(entries_[slots_[slot]].key);
    const uint32_t from_home = (slot - home) & slot_mask_;
    const uint32_t from_gap = (slot - gap) & slot_mask_;
    if (from_home < from_gap) continue;
    slots_[gap] = slots_[slot];
    gap = slot;
  }
  slots_[gap] = 0;
}

BlockId PrefixCache::FirstChild(const PrefixLink& parent) const {
  const int32_t first = order_.Locate([&](int32_t i) { return IsBefore(entries_[i], parent, {}); }).first_after;
  return first != 0 && entries_[first].parent == parent ? BlockAt(first) : kNullBlock;
}

BlockId PrefixCache::NextSibling(BlockId block) const {
  const int32_t next = order_.Next(entry_of_[Index(block)]);
  return next != 0 && entries_[next].parent == parent(block) ? BlockAt(next) : kNullBlock;
}

absl::Status PrefixCache::CheckEntry(BlockId block) const {
  const Entry& entry = At(block);
  if (entry.block != block)
    return absl::InternalError(absl::StrFormat("block %d and its entry disagree", Index(block)));
  if (entry.num_tokens < 1 || entry.num_tokens > block_size_) {
    return absl::InternalError(absl::StrFormat("the entry of block %d has %d tokens", Index(block), entry.num_tokens));
  }
  if (is_full(block) && Find(entry.parent, entry.key, entry.tokens()) != block)
    return absl::InternalError(absl::StrFormat("the entry of block %d is not found by its own contents", Index(block)));
  if (!IsAlive(entry.parent))
    return absl::InternalError(absl::StrFormat("the entry before that of block %d is gone", Index(block)));
  return absl::OkStatus();
}

// One walk: what stands between its neighbours in a sound tree is found by its own contents.
absl::Status PrefixCache::CheckOrder() const {
  std::vector<int32_t> num_children(entries_.size());
  int32_t previous = 0, ordered = 0;
  for (int32_t i = order_.First(); i != 0; previous = i, i = order_.Next(i)) {
    const Entry& entry = entries_[i];
    ++num_children[Index(entry.parent.entry)];
    if (++ordered > size_ || !order_.IsLinked(i)) return absl::InternalError("the order of entries is broken");
    if (previous == 0) continue;
    const Entry& before = entries_[previous];
    if (!IsBefore(before, entry.parent, entry.tokens())) {
      return absl::InternalError(absl::StrFormat("the entries of blocks %d and %d stand in the wrong order",
                                                 Index(before.block), Index(entry.block)));
    }
    if (SharedTokens(i, before.parent, before.tokens()) == before.num_tokens) {
      return absl::InternalError(
          absl::StrFormat("the entry of block %d begins that of block %d", Index(before.block), Index(entry.block)));
    }
  }
  if (ordered != size_) return absl::InternalError(absl::StrFormat("%d entries, %d in order", size_, ordered));
  for (int32_t i = order_.First(); i != 0; i = order_.Next(i)) {
    if (entries_[i].num_children == num_children[i]) continue;
    return absl::InternalError(absl::StrFormat("block %d: %d entries behind it, %d counted", Index(BlockAt(i)),
                                               num_children[i], entries_[i].num_children));
  }
  return absl::OkStatus();
}

absl::Status PrefixCache::CheckInvariants() const {
  int32_t entries = 0, full = 0;
  for (int32_t i = 1; i < static_cast<int32_t>(entries_.size()); ++i) {
    const BlockId block{i};
    if (Contains(block) != order_.Contains(entry_of_[i])) {
      return absl::InternalError(absl::StrFormat("block %d: has an entry %d, is ordered %d", i, Contains(block),
                                                 order_.Contains(entry_of_[i])));
    }
    if (!Contains(block)) continue;
    ++entries;
    full += is_full(block);
    if (absl::Status status = CheckEntry(block); !status.ok()) return status;
  }
  const auto used = static_cast<int32_t>(slots_.size() - std::count(slots_.begin(), slots_.end(), 0));
  if (entries != size_ || used != full) {
    return absl::InternalError(
        absl::StrFormat("%d entries, %d counted; %d full ones, %d used slots", entries, size_, full, used));
  }
  return CheckOrder();
}

}  // namespace quire
