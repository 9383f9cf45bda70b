#include "scheduler/batch_builder.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace quire {

BatchBuilder::BatchBuilder(int32_t block_size, int32_t max_model_len, const GroupPages* pages)
    : block_size_(block_size),
      max_blocks_((max_model_len + block_size - 1) / block_size),
      pages_(pages),
      tables_(pages == nullptr ? 1 : pages->num_groups()) {}

// Each entry is written once, so that a step of many long sequences costs no more than copying their tables.
void BatchBuilder::CopyTables(const SchedulePlan& plan, int32_t stride) {
  int32_t* row = ResizeTables(plan, stride, /*group=*/0);
  for (size_t s = 0; s < plan.sequences.size(); ++s, row += stride) {
    const int32_t used = (context_lens_[s] + block_size_ - 1) / block_size_;
    static_assert(sizeof(BlockId) == sizeof(int32_t));
    std::memcpy(row, plan.sequences[s].sequence->table.blocks().data(), used * sizeof(int32_t));
    std::fill(row + used, row + stride, static_cast<int32_t>(kNullBlock));
  }
}

// With layer groups: pages, and null entries for what has slid out.
void BatchBuilder::FillTables(const SchedulePlan& plan, int32_t stride, int32_t group) {
  int32_t* row = ResizeTables(plan, stride, group);
  std::vector<int32_t>& slots = tables_[group].slot_mapping;
  slots.clear();
  for (size_t s = 0; s < plan.sequences.size(); ++s, row += stride) {
    const BlockTable& table = plan.sequences[s].sequence->table;
    const auto [begin, end] = table.paged(group);
    const int32_t used = (context_lens_[s] + block_size_ - 1) / block_size_;
    QUIRE_CHECK(used <= end);
    std::fill(row, row + stride, static_cast<int32_t>(kNoPage));
    for (int32_t i = begin; i < used; ++i) row[i] = static_cast<int32_t>(pages_->page(group, table.blocks()[i]));
    for (int32_t position = plan.sequences[s].start; position < context_lens_[s]; ++position) {
      slots.push_back(row[position / block_size_] * block_size_ + position % block_size_);
    }
  }
}

// Room for the longest tables at once: sequences that grow by a block must not grow this buffer.
int32_t* BatchBuilder::ResizeTables(const SchedulePlan& plan, int32_t stride, int32_t group) {
  std::vector<int32_t>& block_tables = tables_[group].block_tables;
  block_tables.reserve(plan.sequences.size() * max_blocks_);
  block_tables.resize(plan.sequences.size() * stride);
  return block_tables.data();
}

void BatchBuilder::CopyIntegrityWork(const IntegrityWork& work) {
  const auto copy = [](const std::vector<IntegrityWork::Item>& from, std::vector<KvIntegrityWork::Item>* to) {
    to->clear();
    for (const IntegrityWork::Item& item : from) to->push_back({static_cast<int32_t>(item.block), item.num_tokens});
  };
  copy(work.checksums, &checksums_);
  copy(work.verify, &verify_);
  poison_.clear();
  for (const BlockId block : work.poison) poison_.push_back(static_cast<int32_t>(block));
}

const ForwardBatch& BatchBuilder::Build(const SchedulePlan& plan) {
  token_ids_.clear();
  tokens_from_samples_.clear();
  positions_.clear();
  context_lens_.clear();
  std::vector<int32_t>& slots = tables_[0].slot_mapping;
  slots.clear();
  cu_q_lens_.assign(1, 0);
  int32_t stride = 0;
  for (const ScheduledSequence& entry : plan.sequences) {
    const Sequence& sequence = *entry.sequence;
    const int32_t context = entry.start + entry.num_tokens;
    QUIRE_CHECK(context <= sequence.table.size() * block_size_);
    QUIRE_DCHECK(entry.first_row == cu_q_lens_.back());
    if (entry.token_from_sample < 0) {
      const auto first = sequence.tokens.begin() + entry.start;
      token_ids_.insert(token_ids_.end(), first, first + entry.num_tokens);
    } else {
      tokens_from_samples_.push_back({entry.first_row, entry.token_from_sample});
      token_ids_.push_back(0);
    }
    for (int32_t position = entry.start; position < context; ++position) {
      positions_.push_back(position);
      if (pages_ == nullptr) slots.push_back(sequence.table.slot(position, block_size_));
    }
    cu_q_lens_.push_back(static_cast<int32_t>(token_ids_.size()));
    context_lens_.push_back(context);
    stride = std::max(stride, (context + block_size_ - 1) / block_size_);
  }

  more_groups_.clear();
  if (pages_ == nullptr) CopyTables(plan, stride);
  for (int32_t group = 0; pages_ != nullptr && group < pages_->num_groups(); ++group) {
    FillTables(plan, stride, group);
    if (group > 0) more_groups_.push_back({tables_[group].slot_mapping, tables_[group].block_tables, stride});
  }

  block_copies_.clear();
  for (const BlockCopy& copy : plan.copies) {
    block_copies_.push_back({static_cast<int32_t>(copy.src), static_cast<int32_t>(copy.dst)});
  }

  CopyIntegrityWork(plan.integrity);

  batch_ = {.token_ids = token_ids_,
            .tokens_from_samples = tokens_from_samples_,
            .positions = positions_,
            .slot_mapping = tables_[0].slot_mapping,
            .cu_q_lens = cu_q_lens_,
            .context_lens = context_lens_,
            .block_tables = tables_[0].block_tables,
            .block_table_stride = stride,
            .more_groups = more_groups_,
            .block_copies = block_copies_,
            .integrity = {.checksums = checksums_, .verify = verify_, .poison = poison_},
            .samples = plan.samples,
            .scores = plan.scores};
  return batch_;
}

}  // namespace quire
