#include "block_manager/block_table.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace quire {

BlockTable::BlockTable(BlockPool* pool, GroupPages* pages)
    : pool_(pool), pages_(pages), paged_(pages == nullptr ? nullptr : new Range[pages->num_groups()]) {
  Register();
  Restamp();
}

BlockTable::BlockTable(BlockTable&& other) noexcept : pool_(other.pool_), pages_(other.pages_) {
  Register();
  TakeFrom(other);
}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  QUIRE_CHECK(pool_ == other.pool_);
  Clear();
  TakeFrom(other);
  return *this;
}

BlockTable::~BlockTable() {
  Clear();
  Unregister();
}

// What can be found stays for later hits.
void BlockTable::ReleasePages() {
  for (int32_t group = 0; group < pages_->num_groups(); ++group) {
    Range& range = paged_[group];
    for (int32_t i = range.end - 1; i >= range.begin; --i) {
      pages_->Release(group, blocks_[i], pool_->FateOfPage(blocks_[i]));
    }
    range = {};
  }
}

void BlockTable::Clear() {
  if (pages_ != nullptr && !blocks_.empty()) ReleasePages();
  while (!blocks_.empty()) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
  Restamp();
  num_stored_ = 0;
  num_on_host_ = 0;
  copy_pending_ = false;
  tail_may_be_shared_ = false;
  hit_pending_ = false;
  num_published_ = 0;
  link_ = {};
}

void BlockTable::Register() {
  next_ = pool_->tables_;
  if (next_ != nullptr) next_->prev_ = this;
  pool_->tables_ = this;
}

void BlockTable::Unregister() {
  (prev_ != nullptr ? prev_->next_ : pool_->tables_) = next_;
  if (next_ != nullptr) next_->prev_ = prev_;
}

void BlockTable::TakeFrom(BlockTable& other) {
  blocks_ = std::exchange(other.blocks_, {});
  stamp_ = other.stamp_;
  other.Restamp();
  std::swap(paged_, other.paged_);  // none of this table's is left
  num_stored_ = std::exchange(other.num_stored_, 0);
  num_on_host_ = std::exchange(other.num_on_host_, 0);
  copy_pending_ = std::exchange(other.copy_pending_, false);
  tail_may_be_shared_ = std::exchange(other.tail_may_be_shared_, false);
  hit_pending_ = std::exchange(other.hit_pending_, false);
  epoch_ = other.epoch_;
  num_published_ = std::exchange(other.num_published_, 0);
  link_ = std::exchange(other.link_, {});
}

}  // namespace quire
