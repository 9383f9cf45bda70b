#include "scheduler/batch_builder.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace quire {
namespace {

constexpr size_t kFetchedAhead = 8;  // sequences

}  // namespace

BatchBuilder::BatchBuilder(int32_t block_size, int32_t max_model_len, const GroupPages* pages)
    : block_size_(block_size),
      max_blocks_((max_model_len + block_size - 1) / block_size),
      pages_(pages),
      tables_(pages == nullptr ? 1 : pages->num_groups()) {}

// Sizes all arrays but those of layer groups.
void BatchBuilder::Resize(const SchedulePlan& plan) {
  const size_t num_sequences = plan.sequences.size();
  token_ids_.resize(plan.num_tokens);
  positions_.resize(plan.num_tokens);
  tokens_from_samples_.clear();
  context_lens_.resize(num_sequences);
  cu_q_lens_.resize(num_sequences + 1);
  more_groups_.clear();

  int32_t longest = 0;
  for (const ScheduledSequence& entry : plan.sequences) longest = std::max(longest, entry.start + entry.num_tokens);
  const int32_t blocks = BlocksFor(longest);
  QUIRE_CHECK(blocks <= max_blocks_);
  const int32_t stride = std::min(max_blocks_, (blocks + kStrideStep - 1) / kStrideStep * kStrideStep);
  if (stride != stride_) {
    tables_[0].block_tables.clear();
    rows_.clear();
    stride_ = stride;
  }
  rows_.resize(num_sequences);
  ResizeTables(num_sequences, /*group=*/0);  // new entries are null
  tables_[0].slot_mapping.resize(plan.num_tokens);
}

// Room for the longest tables at once: sequences that grow by a block must not grow this buffer.
int32_t* BatchBuilder::ResizeTables(size_t num_sequences, int32_t group) {
  std::vector<int32_t>& block_tables = tables_[group].block_tables;
  block_tables.reserve(num_sequences * max_blocks_);
  block_tables.resize(num_sequences * stride_);
  return block_tables.data();
}

// All of a sequence but what comes from block tables.
void BatchBuilder::FillTokens(const ScheduledSequence& entry, size_t s) {
  const Sequence& sequence = *entry.sequence;
  const int32_t row = entry.first_row, context = entry.start + entry.num_tokens;
  QUIRE_CHECK(context <= sequence.table.size() * block_size_);
  QUIRE_DCHECK(row == cu_q_lens_[s]);
  cu_q_lens_[s + 1] = row + entry.num_tokens;
  context_lens_[s] = context;
  for (int32_t i = 0; i < entry.num_tokens; ++i) positions_[row + i] = entry.start + i;
  if (entry.token_from_sample >= 0) {
    tokens_from_samples_.push_back({row, entry.token_from_sample});
    token_ids_[row] = 0;
  } else {
    const absl::Span<const int32_t> text = entry.text();
    for (int32_t i = 0; i < entry.num_tokens; ++i) token_ids_[row + i] = text[entry.start + i];
  }
}

// A sequence's row of the block tables, and its slots. In steady state most rows stay as they are, so that a step of
// many long sequences does not cost a copy of all tables.
void BatchBuilder::UpdateRow(const ScheduledSequence& entry, size_t s) {
  const BlockTable& table = entry.sequence->table;
  const int32_t context = context_lens_[s];
  Row& held = rows_[s];
  const bool same = held.stamp == table.stamp();
  if (!same || context > held.used * block_size_ || context <= (held.used - 1) * block_size_) {
    int32_t* row = tables_[0].block_tables.data() + s * stride_;
    const int32_t used = BlocksFor(context), kept = same ? std::min(held.used, used) : 0;
    static_assert(sizeof(BlockId) == sizeof(int32_t));
    std::memcpy(row + kept, table.blocks().data() + kept, (used - kept) * sizeof(int32_t));
    if (used < held.used) std::fill(row + used, row + held.used, static_cast<int32_t>(kNullBlock));
    held = {table.stamp(), used, row[used - 1]};
  }
  // Slots in the last block, as those of decodes, need neither the table nor a division.
  const int32_t last_begin = (held.used - 1) * block_size_;
  int32_t* slot = tables_[0].slot_mapping.data() + entry.first_row;
  for (int32_t position = entry.start; position < context; ++position) {
    *slot++ = position < last_begin ? table.slot(position, block_size_)
                                    : held.last_block * block_size_ + position - last_begin;
  }
}

// With layer groups: pages, and null entries for what has slid out.
void BatchBuilder::FillTables(const SchedulePlan& plan, int32_t group) {
  int32_t* row = ResizeTables(plan.sequences.size(), group);
  std::vector<int32_t>& slots = tables_[group].slot_mapping;
  slots.clear();
  for (size_t s = 0; s < plan.sequences.size(); ++s, row += stride_) {
    const BlockTable& table = plan.sequences[s].sequence->table;
    const auto [begin, end] = table.paged(group);
    const int32_t used = BlocksFor(context_lens_[s]);
    QUIRE_CHECK(used <= end);
    std::fill(row, row + stride_, static_cast<int32_t>(kNoPage));
    for (int32_t i = begin; i < used; ++i) row[i] = static_cast<int32_t>(pages_->page(group, table.blocks()[i]));
    for (int32_t position = plan.sequences[s].start; position < context_lens_[s]; ++position) {
      slots.push_back(row[position / block_size_] * block_size_ + position % block_size_);
    }
  }
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
  Resize(plan);
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    if (s + kFetchedAhead < plan.sequences.size()) FetchAhead(*plan.sequences[s + kFetchedAhead].sequence);
    FillTokens(plan.sequences[s], s);
    if (pages_ == nullptr) UpdateRow(plan.sequences[s], s);
  }
  for (int32_t group = 0; pages_ != nullptr && group < pages_->num_groups(); ++group) {
    FillTables(plan, group);
    if (group > 0) more_groups_.push_back({tables_[group].slot_mapping, tables_[group].block_tables, stride_});
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
            .block_table_stride = stride_,
            .more_groups = more_groups_,
            .block_copies = block_copies_,
            .integrity = {.checksums = checksums_, .verify = verify_, .poison = poison_},
            .samples = plan.samples,
            .scores = plan.scores};
  return batch_;
}

}  // namespace quire
