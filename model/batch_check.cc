#include "model/batch_check.h"

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

absl::Status Error(const char* field, int64_t index, int64_t value, int64_t min, int64_t max) {
  return absl::InvalidArgumentError(
      absl::StrFormat("batch: %s[%d] is %d, allowed is %d to %d", field, index, value, min, max));
}

absl::Status CheckSize(const char* field, size_t size, size_t expected) {
  if (size == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("batch: %s has %d entries, expected are %d", field, size, expected));
}

absl::Status CheckRange(const char* field, absl::Span<const int32_t> values, int64_t min, int64_t max) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < min || values[i] > max) return Error(field, static_cast<int64_t>(i), values[i], min, max);
  }
  return absl::OkStatus();
}

// Tables of one group: every id is a block, every slot is in one, and no table is shorter than its sequence.
absl::Status CheckGroup(const ForwardBatch& batch, const GroupTables& group, const BatchLimits& limits) {
  const size_t num_seqs = batch.context_lens.size();
  if (group.block_table_stride < 0 || group.block_table_stride > limits.num_blocks) {
    return Error("block_table_stride", 0, group.block_table_stride, 0, limits.num_blocks);
  }
  QUIRE_RETURN_IF_ERROR(CheckSize("slot_mapping", group.slot_mapping.size(), batch.token_ids.size()));
  QUIRE_RETURN_IF_ERROR(
      CheckSize("block_tables", group.block_tables.size(), num_seqs * static_cast<size_t>(group.block_table_stride)));
  QUIRE_RETURN_IF_ERROR(
      CheckRange("slot_mapping", group.slot_mapping, 0, int64_t{limits.num_blocks} * limits.block_size - 1));
  QUIRE_RETURN_IF_ERROR(CheckRange("block_tables", group.block_tables, 0, limits.num_blocks - 1));
  const int64_t max_context = group.block_table_stride * limits.block_size;
  for (size_t s = 0; s < num_seqs; ++s) {
    if (batch.context_lens[s] > max_context) {
      return Error("context_lens", static_cast<int64_t>(s), batch.context_lens[s], 1, max_context);
    }
  }
  return absl::OkStatus();
}

// Every sequence has rows, and they come one after another.
absl::Status CheckSequences(const ForwardBatch& batch) {
  const auto num_tokens = static_cast<int64_t>(batch.token_ids.size());
  const size_t num_seqs = batch.context_lens.size();
  QUIRE_RETURN_IF_ERROR(CheckSize("cu_q_lens", batch.cu_q_lens.size(), num_seqs + 1));
  if (batch.cu_q_lens[0] != 0 || batch.cu_q_lens[num_seqs] != num_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat("batch: cu_q_lens runs from %d to %d, expected is 0 to %d",
                                                      batch.cu_q_lens[0], batch.cu_q_lens[num_seqs], num_tokens));
  }
  for (size_t s = 0; s < num_seqs; ++s) {
    const auto index = static_cast<int64_t>(s);
    const int64_t rows = int64_t{batch.cu_q_lens[s + 1]} - batch.cu_q_lens[s];
    if (rows < 1 || rows > num_tokens)
      return Error("cu_q_lens", index + 1, batch.cu_q_lens[s + 1], batch.cu_q_lens[s] + int64_t{1}, num_tokens);
    if (batch.context_lens[s] < rows) return Error("context_lens", index, batch.context_lens[s], rows, INT32_MAX);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = batch.cu_q_lens[s] + i, position = batch.context_lens[s] - rows + i;
      if (batch.positions[row] != position) return Error("positions", row, batch.positions[row], position, position);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const ForwardBatch& batch, const BatchLimits& limits) {
  const size_t num_tokens = batch.token_ids.size(), num_seqs = batch.context_lens.size();
  if (num_tokens > static_cast<size_t>(limits.max_tokens)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("batch: %d tokens, max_num_batched_tokens is %d", num_tokens, limits.max_tokens));
  }
  if (num_seqs > static_cast<size_t>(limits.max_seqs)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("batch: %d sequences, max_num_seqs is %d", num_seqs, limits.max_seqs));
  }
  QUIRE_RETURN_IF_ERROR(CheckSize("tokens_from_samples", batch.tokens_from_samples.size(), 0));  // one step at a time
  QUIRE_RETURN_IF_ERROR(CheckSize("more_groups", batch.more_groups.size(), limits.num_groups - 1));
  QUIRE_RETURN_IF_ERROR(CheckSize("positions", batch.positions.size(), num_tokens));
  QUIRE_RETURN_IF_ERROR(CheckRange("token_ids", batch.token_ids, 0, limits.vocab_size - 1));
  for (int32_t g = 0; g < limits.num_groups; ++g) QUIRE_RETURN_IF_ERROR(CheckGroup(batch, batch.group(g), limits));
  QUIRE_RETURN_IF_ERROR(CheckSequences(batch));
  for (size_t i = 0; i < batch.block_copies.size(); ++i) {
    const BlockCopyIds copy = batch.block_copies[i];
    const int32_t last = limits.num_blocks + limits.num_host_blocks - 1;
    QUIRE_RETURN_IF_ERROR(CheckRange("block_copies", {&copy.src, 1}, 0, last));
    QUIRE_RETURN_IF_ERROR(CheckRange("block_copies", {&copy.dst, 1}, 0, last));
  }
  for (const auto items : {batch.integrity.checksums, batch.integrity.verify}) {
    for (const KvIntegrityWork::Item& item : items) {
      QUIRE_RETURN_IF_ERROR(CheckRange("integrity.block", {&item.block, 1}, 0, limits.num_blocks - 1));
      QUIRE_RETURN_IF_ERROR(CheckRange("integrity.num_tokens", {&item.num_tokens, 1}, 0, limits.block_size));
    }
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("integrity.poison", batch.integrity.poison, 0, limits.num_blocks - 1));
  const int64_t last_row = static_cast<int64_t>(num_tokens) - 1;
  for (const SampleRow& sample : batch.samples) {
    QUIRE_RETURN_IF_ERROR(CheckRange("samples", {&sample.logits_row, 1}, 0, last_row));
    const SampleExtras& extras = sample.extras();
    QUIRE_RETURN_IF_ERROR(CheckRange("banned_ids", extras.banned_ids, 0, limits.vocab_size - 1));
    if (!extras.allowed_mask.empty()) {
      const auto words = (static_cast<size_t>(limits.vocab_size) + 31) / 32;
      QUIRE_RETURN_IF_ERROR(CheckSize("allowed_mask", extras.allowed_mask.size(), words));
    }
  }
  for (const ScoreRow& score : batch.scores) {
    QUIRE_RETURN_IF_ERROR(CheckRange("scores", {&score.logits_row, 1}, 0, last_row));
    QUIRE_RETURN_IF_ERROR(CheckRange("target_id", {&score.target_id, 1}, 0, limits.vocab_size - 1));
  }
  return absl::OkStatus();
}

}  // namespace quire
