#pragma once

#include <cstdint>
#include <vector>

#include "block_manager/group_pages.h"
#include "model/forward_batch.h"
#include "scheduler/schedule_plan.h"

namespace quire {

// Flattens a plan into the batch that the model sees. Buffers are reused: a plan of no more sequences and tokens than
// earlier ones allocates nothing. Owned and used by the engine thread; one for each plan in flight.
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
  void CopyIntegrityWork(const IntegrityWork& work);
  void CopyTables(const SchedulePlan& plan, int32_t stride);
  void FillTables(const SchedulePlan& plan, int32_t stride, int32_t group);
  int32_t* ResizeTables(const SchedulePlan& plan, int32_t stride, int32_t group);

  const int32_t block_size_;
  const int32_t max_blocks_;  // of one sequence
  const GroupPages* const pages_;
  std::vector<int32_t> token_ids_, positions_;
  std::vector<TokenFromSample> tokens_from_samples_;
  std::vector<int32_t> cu_q_lens_, context_lens_;
  std::vector<Tables> tables_;  // by group
  std::vector<GroupTables> more_groups_;
  std::vector<BlockCopyIds> block_copies_;
  std::vector<KvIntegrityWork::Item> checksums_, verify_;
  std::vector<int32_t> poison_;
  ForwardBatch batch_;
};

}  // namespace quire
