#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/group_pages.h"
#include "model/forward_batch.h"
#include "scheduler/schedule_plan.h"

namespace quire {

// Flattens a plan into the batch that the model sees. Buffers are reused: a plan of no more sequences and tokens than
// earlier ones allocates nothing. Rows of block tables are, too: one whose sequence keeps its place gets only the
// blocks that have come since (not with layer groups). All plans must be of one scheduler. Owned and used by the engine
// thread; one for each plan in flight.
class BatchBuilder {
 public:
  // `block_size`: tokens in a block. `max_model_len`: tokens of the longest sequence. `pages`: the block manager's,
  // null without layer groups.
  BatchBuilder(int32_t block_size, int32_t max_model_len, const GroupPages* pages = nullptr);

  // The batch of `plan`, which must not be empty. It points into the builder and the plan, and is valid until the next
  // Build and as long as the plan is left alone.
  const ForwardBatch& Build(const SchedulePlan& plan);

 private:
  // How one layer group reaches its blocks.
  struct Tables {
    std::vector<int32_t> slot_mapping, block_tables;
  };
  // What a row of block_tables holds: the first `used` entries of the table of this stamp, and null blocks behind.
  struct Row {
    uint64_t stamp = 0;  // 0: no table's
    int32_t used = 0, last_block = 0;
  };

  // The stride is a multiple of it, so that the longest sequence seldom moves all rows.
  static constexpr int32_t kStrideStep = 8;

  int32_t BlocksFor(int32_t num_tokens) const { return (num_tokens + block_size_ - 1) / block_size_; }
  void Resize(const SchedulePlan& plan);
  int32_t* ResizeTables(size_t num_sequences, int32_t group);
  void FillTokens(const ScheduledSequence& entry, size_t s);
  void UpdateRow(const ScheduledSequence& entry, size_t s);
  void FillTables(const SchedulePlan& plan, int32_t group);
  void CopyIntegrityWork(const IntegrityWork& work);

  const int32_t block_size_;
  const int32_t max_blocks_;  // of one sequence
  const GroupPages* const pages_;
  std::vector<int32_t> token_ids_, positions_;
  std::vector<TokenFromSample> tokens_from_samples_;
  std::vector<int32_t> cu_q_lens_, context_lens_;
  std::vector<Tables> tables_;  // by group
  std::vector<Row> rows_;       // of the only one, where there are no groups
  int32_t stride_ = 0;
  std::vector<GroupTables> more_groups_;
  std::vector<BlockCopyIds> block_copies_;
  std::vector<KvIntegrityWork::Item> checksums_, verify_;
  std::vector<int32_t> poison_;
  ForwardBatch batch_;
};

}  // namespace quire
