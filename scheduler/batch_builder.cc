#include "scheduler/batch_builder.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace quire {

BatchBuilder::BatchBuilder(int32_t block_size, int32_t max_model_len)
    : block_size_(block_size), max_blocks_((max_model_len + block_size - 1) / block_size) {}

const ForwardBatch& BatchBuilder::Build(const SchedulePlan& plan) {
  token_ids_.clear();
  positions_.clear();
  slot_mapping_.clear();
  context_lens_.clear();
  cu_q_lens_.assign(1, 0);
  int32_t stride = 0;
  for (const ScheduledSequence& entry : plan.sequences) {
    const Sequence& sequence = *entry.sequence;
    const int32_t context = entry.start + entry.num_tokens;
    QUIRE_CHECK(context <= sequence.table.size() * block_size_);
    QUIRE_DCHECK(entry.first_row == cu_q_lens_.back());
    const auto first = sequence.tokens.begin() + entry.start;
    token_ids_.insert(token_ids_.end(), first, first + entry.num_tokens);
    for (int32_t position = entry.start; position < context; ++position) {
      positions_.push_back(position);
      slot_mapping_.push_back(sequence.table.slot(position, block_size_));
    }
    cu_q_lens_.push_back(static_cast<int32_t>(token_ids_.size()));
    context_lens_.push_back(context);
    stride = std::max(stride, (context + block_size_ - 1) / block_size_);
  }

  // Room for the longest tables at once: sequences that grow by a block must not grow this buffer. Each entry is
  // written once, so that a step of many long sequences costs no more than copying their tables.
  block_tables_.reserve(plan.sequences.size() * max_blocks_);
  block_tables_.resize(plan.sequences.size() * stride);
  int32_t* row = block_tables_.data();
  for (size_t s = 0; s < plan.sequences.size(); ++s, row += stride) {
    const int32_t used = (context_lens_[s] + block_size_ - 1) / block_size_;
    static_assert(sizeof(BlockId) == sizeof(int32_t));
    std::memcpy(row, plan.sequences[s].sequence->table.blocks().data(), used * sizeof(int32_t));
    std::fill(row + used, row + stride, static_cast<int32_t>(kNullBlock));
  }

  block_copies_.clear();
  for (const BlockCopy& copy : plan.copies) {
    block_copies_.push_back({static_cast<int32_t>(copy.src), static_cast<int32_t>(copy.dst)});
  }

  batch_ = {.token_ids = token_ids_,
            .positions = positions_,
            .slot_mapping = slot_mapping_,
            .cu_q_lens = cu_q_lens_,
            .context_lens = context_lens_,
            .block_tables = block_tables_,
            .block_table_stride = stride,
            .block_copies = block_copies_,
            .samples = plan.samples,
            .scores = plan.scores};
  return batch_;
}

}  // namespace quire
