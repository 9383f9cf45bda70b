#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ops.h"

namespace quire {

// One step as the model sees it: a flat batch of T tokens from S sequences. All arrays are host memory of the caller
// and stay valid until Wait returned. The model learns neither requests nor owners of blocks.
struct ForwardBatch {
  absl::Span<const int32_t> token_ids;  // [T], each in [0, V)
  absl::Span<const int32_t> positions;  // [T], 0-based position in its sequence
  absl::Span<const int32_t>
      slot_mapping;                     // [T], block * block_size + offset of where this token's K and V go; distinct
  absl::Span<const int32_t> cu_q_lens;  // [S + 1], rows of sequence s: cu_q_lens[s] .. cu_q_lens[s + 1] - 1
  absl::Span<const int32_t> context_lens;  // [S], tokens in the cache once this step is stored
  absl::Span<const int32_t> block_tables;  // [S, block_table_stride] physical block ids, unused entries 0
  int64_t block_table_stride = 0;
  absl::Span<const BlockCopyIds> block_copies;  // done before anything else of the step, in order, on every layer
  // Rows of this batch whose logits are wanted: `logits_row` of SampleRow and ScoreRow is a row in [0, T).
  absl::Span<const SampleRow> samples;
  absl::Span<const ScoreRow> scores;
};

}  // namespace quire
