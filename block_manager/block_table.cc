#include "block_manager/block_table.h"

#include <utility>

#include "kernels/base/check.h"

namespace quire {

BlockTable::BlockTable(BlockPool* pool) : pool_(pool) { Register(); }

BlockTable::BlockTable(BlockTable&& other) noexcept : pool_(other.pool_) {
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

void BlockTable::Clear() {
  while (!blocks_.empty()) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
  }
  num_stored_ = 0;
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
  num_stored_ = std::exchange(other.num_stored_, 0);
  copy_pending_ = std::exchange(other.copy_pending_, false);
  tail_may_be_shared_ = std::exchange(other.tail_may_be_shared_, false);
  hit_pending_ = std::exchange(other.hit_pending_, false);
  epoch_ = other.epoch_;
  num_published_ = std::exchange(other.num_published_, 0);
  link_ = std::exchange(other.link_, {});
}

}  // namespace quire
