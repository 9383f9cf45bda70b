#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace quire {

// How the layers of one group reach their blocks in a step.
struct GroupTables {
  absl::Span<const int32_t>
      slot_mapping;  // [T], block * block_size + offset of where this token's K and V go; distinct
  // [S, block_table_stride] physical block ids in order of position, unused entries 0. So may be those that have slid
  // out of the group's window: entry i is read only if a row of the step sees a key at position i * block_size or later
  // of it.
  absl::Span<const int32_t> block_tables;
  int64_t block_table_stride = 0;
};

// What the integrity mode wants of a step (model/kv_integrity.h).
struct KvIntegrityWork {
  struct Item {
    int32_t block = 0;
    int32_t num_tokens = 0;  // its first tokens; what lies behind them may hold anything
  };
  absl::Span<const Item> checksums = {};  // keep one of the contents: before the block copies
  absl::Span<const Item> verify = {};     // must still have the one kept: then
  absl::Span<const int32_t> poison = {};  // nobody may read them: after the copies

  bool empty() const { return checksums.empty() && verify.empty() && poison.empty(); }
};

// A row whose token is not known to the host yet: the step before, still in flight, samples it.
struct TokenFromSample {
  int32_t row = 0;     // of this batch, [0, T); its token_ids entry is 0
  int32_t sample = 0;  // index into `samples` of the batch before
};

// One step as the model sees it: a flat batch of T tokens from S sequences. All arrays are host memory of the caller
// and stay valid until Wait returned. The model learns neither requests nor owners of blocks.
struct ForwardBatch {
  absl::Span<const int32_t> token_ids;  // [T], each in [0, V)
  // In order of rows; only for a runner that may have two steps in flight. If the step before fails, any id may be
  // taken.
  absl::Span<const TokenFromSample> tokens_from_samples = {};
  absl::Span<const int32_t> positions;             // [T], 0-based position in its sequence
  absl::Span<const int32_t> slot_mapping;          // of layer group 0, the only one of most models, as in GroupTables
  absl::Span<const int32_t> cu_q_lens;             // [S + 1], rows of sequence s: cu_q_lens[s] .. cu_q_lens[s + 1] - 1
  absl::Span<const int32_t> context_lens;          // [S], tokens in the cache once this step is stored
  absl::Span<const int32_t> block_tables;          // of group 0
  int64_t block_table_stride = 0;                  // of group 0
  absl::Span<const GroupTables> more_groups = {};  // groups 1, 2, ...: no block stands in the tables of two groups
  // Done before anything else of the step, in order, on every layer. Ids from num_kv_blocks on: host blocks.
  absl::Span<const BlockCopyIds> block_copies;
  KvIntegrityWork integrity = {};
  // Rows of this batch whose logits are wanted: `logits_row` of SampleRow and ScoreRow is a row in [0, T).
  absl::Span<const SampleRow> samples;
  absl::Span<const ScoreRow> scores;

  int32_t num_groups() const { return 1 + static_cast<int32_t>(more_groups.size()); }
  GroupTables group(int32_t index) const {
    if (index > 0) return more_groups[index - 1];
    return {slot_mapping, block_tables, block_table_stride};
  }
};

}  // namespace quire
