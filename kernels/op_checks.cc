#include "kernels/op_checks.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace quire {
namespace {

using absl::InvalidArgumentError;
using absl::StrFormat;

absl::Status CheckEqual(const char* what, int64_t actual, int64_t expected) {
  if (actual == expected) return absl::OkStatus();
  return InvalidArgumentError(StrFormat("%s is %d, expected %d", what, actual, expected));
}

absl::Status CheckRange(const char* what, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidArgumentError(StrFormat("%s is %d, expected %d..%d", what, value, min, max));
}

// An f32 matrix of the given shape.
absl::Status CheckMatrix(const char* what, const TensorView& view, int64_t rows, int64_t cols) {
  if (view.dtype != DType::kF32) {
    return InvalidArgumentError(StrFormat("%s is %s, expected f32", what, Name(view.dtype)));
  }
  if (view.rows != rows || view.cols != cols) {
    return InvalidArgumentError(StrFormat("%s is [%d, %d], expected [%d, %d]", what, view.rows, view.cols, rows, cols));
  }
  if (rows < 0 || cols < 0 || (rows > 1 && view.stride < cols)) {
    return InvalidArgumentError(StrFormat("%s has stride %d for [%d, %d]", what, view.stride, rows, cols));
  }
  if (view.data == nullptr && rows * cols > 0) return InvalidArgumentError(StrFormat("%s has no data", what));
  return absl::OkStatus();
}

absl::Status CheckIds(const char* what, absl::Span<const int32_t> ids, int64_t limit) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= limit) {
      return InvalidArgumentError(StrFormat("%s[%d] is %d, expected 0..%d", what, i, ids[i], limit - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKv(const char* op, const PagedKvView& kv) {
  const bool block_size_ok =
      kv.block_size == 1 || kv.block_size == 8 || kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64;
  if (!block_size_ok) {
    return InvalidArgumentError(StrFormat("%s: block_size is %d, expected 1, 8, 16, 32 or 64", op, kv.block_size));
  }
  if (kv.head_dim < 2 || kv.head_dim > 256 || kv.head_dim % 2 != 0) {
    return InvalidArgumentError(StrFormat("%s: head_dim is %d, expected an even number up to 256", op, kv.head_dim));
  }
  if (kv.num_kv_heads < 1) return InvalidArgumentError(StrFormat("%s: num_kv_heads is %d", op, kv.num_kv_heads));
  if (kv.num_blocks < 0 || (kv.data == nullptr && kv.num_blocks > 0)) {
    return InvalidArgumentError(StrFormat("%s: KV cache of %d blocks has no data", op, kv.num_blocks));
  }
  return absl::OkStatus();
}

absl::Status CheckLogprobCount(const char* what, int32_t count, int32_t min) {
  return CheckRange(what, count, min, INT32_MAX);
}

// One bit an id, or nothing.
absl::Status CheckMask(const char* what, absl::Span<const uint32_t> mask, int64_t vocab) {
  const auto words = static_cast<int64_t>(mask.size());
  if (words == 0 || words == (vocab + 31) / 32) return absl::OkStatus();
  return InvalidArgumentError(StrFormat("%s has %d words, expected none or %d", what, words, (vocab + 31) / 32));
}

// What memory depends on: sizes and ids.
absl::Status CheckRules(const SampleExtras& extras, const SamplingRules& rules, int64_t vocab) {
  QUIRE_RETURN_IF_ERROR(CheckMask("SampleTokens: allowed_ids", rules.allowed_ids, vocab));
  QUIRE_RETURN_IF_ERROR(CheckMask("SampleTokens: dry_breakers", rules.dry_breakers, vocab));
  for (const std::vector<int32_t>& word : rules.bad_words) {
    if (word.empty()) return InvalidArgumentError("SampleTokens: a bad word is empty");
    QUIRE_RETURN_IF_ERROR(CheckIds("SampleTokens: bad_words", word, vocab));
  }
  for (const LogitBias& bias : rules.logit_bias) {
    QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: logit_bias", bias.token_id, 0, vocab - 1));
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: dry_allowed_length", rules.dry_allowed_length, 1, INT32_MAX));
  QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: no_repeat_ngram_size", rules.no_repeat_ngram_size, 0, INT32_MAX));
  const auto num_tokens = static_cast<int64_t>(extras.tokens.size());
  QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: prompt_len", extras.prompt_len, 0, num_tokens));
  return CheckIds("SampleTokens: tokens", extras.tokens, vocab);
}

absl::Status CheckSampleRow(const SampleRow& row, int64_t num_rows, int64_t vocab) {
  QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: logits_row", row.logits_row, 0, num_rows - 1));
  if (!(row.temperature >= 0) || std::isinf(row.temperature)) {
    return InvalidArgumentError(StrFormat("SampleTokens: temperature is %g, expected >= 0", row.temperature));
  }
  if (!(row.min_p >= 0 && row.min_p <= 1)) {
    return InvalidArgumentError(StrFormat("SampleTokens: min_p is %g, expected 0..1", row.min_p));
  }
  if (!(row.top_p > 0 && row.top_p <= 1)) {
    return InvalidArgumentError(StrFormat("SampleTokens: top_p is %g, expected above 0 and up to 1", row.top_p));
  }
  QUIRE_RETURN_IF_ERROR(CheckLogprobCount("SampleTokens: num_logprobs", row.num_logprobs, SampleRow::kNoLogprobs));
  const SampleExtras& extras = row.extras();
  QUIRE_RETURN_IF_ERROR(CheckMask("SampleTokens: allowed_mask", extras.allowed_mask, vocab));
  if (extras.rules != nullptr) QUIRE_RETURN_IF_ERROR(CheckRules(extras, *extras.rules, vocab));
  return CheckIds("SampleTokens: banned_ids", extras.banned_ids, vocab);
}

}  // namespace

absl::Status CheckPackWeight(absl::Span<const WeightView> parts) {
  if (parts.empty()) return InvalidArgumentError("PackWeight: no parts");
  for (size_t i = 0; i < parts.size(); ++i) {
    const WeightView& part = parts[i];
    const int32_t block = Info(part.format).block_length;
    if (part.rows < 0 || part.cols < 1 || part.cols != parts[0].cols || part.cols % block != 0) {
      return InvalidArgumentError(
          StrFormat("PackWeight: part %d is [%d, %d] of %s, expected %d columns, a multiple of %d", i, part.rows,
                    part.cols, Info(part.format).name, parts[0].cols, block));
    }
    if (part.data == nullptr && part.rows > 0) {
      return InvalidArgumentError(StrFormat("PackWeight: part %d has no data", i));
    }
    if (!part.row_order.empty() && static_cast<int64_t>(part.row_order.size()) != part.rows) {
      return InvalidArgumentError(
          StrFormat("PackWeight: part %d has %d rows, but an order of %d", i, part.rows, part.row_order.size()));
    }
    for (int32_t row : part.row_order) {
      if (row >= 0 && row < part.rows) continue;
      return InvalidArgumentError(
          StrFormat("PackWeight: part %d has row %d in its order, expected 0..%d", i, row, part.rows - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKvType(const char* op, const PagedKvView& kv, std::initializer_list<DType> types) {
  std::string expected;
  for (const DType type : types) {
    if (kv.dtype == type) return absl::OkStatus();
    absl::StrAppend(&expected, expected.empty() ? "" : " or ", std::string(Name(type)));
  }
  return InvalidArgumentError(StrFormat("%s: KV cache is %s, expected %s", op, Name(kv.dtype), expected));
}

absl::Status CheckEmbeddingLookup(const EmbeddingLookupParams& params) {
  if (params.table == nullptr) return InvalidArgumentError("EmbeddingLookup: no table");
  QUIRE_RETURN_IF_ERROR(CheckIds("EmbeddingLookup: ids", params.ids, params.table->rows()));
  return CheckMatrix("EmbeddingLookup: out", params.out, static_cast<int64_t>(params.ids.size()), params.table->cols());
}

absl::Status CheckAddRmsNorm(const AddRmsNormParams& params) {
  const int64_t rows = params.residual.rows, cols = params.residual.cols;
  QUIRE_RETURN_IF_ERROR(CheckMatrix("AddRmsNorm: residual", params.residual, rows, cols));
  if (params.delta.data != nullptr) {
    QUIRE_RETURN_IF_ERROR(CheckMatrix("AddRmsNorm: delta", params.delta, rows, cols));
  }
  QUIRE_RETURN_IF_ERROR(CheckMatrix("AddRmsNorm: out", params.out, rows, cols));
  if (params.weight == nullptr) return InvalidArgumentError("AddRmsNorm: no weight");
  if (params.out.data == params.residual.data && rows * cols > 0) {
    return InvalidArgumentError("AddRmsNorm: out aliases residual");
  }
  return absl::OkStatus();
}

absl::Status CheckLinear(const LinearParams& params) {
  if (params.weight == nullptr) return InvalidArgumentError("Linear: no weight");
  QUIRE_RETURN_IF_ERROR(CheckMatrix("Linear: x", params.x, params.x.rows, params.weight->cols()));
  return CheckMatrix("Linear: out", params.out, params.x.rows, params.weight->rows());
}

absl::Status CheckNormLinear(const AddRmsNormParams& norm, const LinearParams& linear) {
  QUIRE_RETURN_IF_ERROR(CheckAddRmsNorm(norm));
  QUIRE_RETURN_IF_ERROR(CheckLinear(linear));
  if (norm.delta.data != nullptr) return InvalidArgumentError("NormLinear: norm has a delta, expected none");
  return CheckSameView("NormLinear: linear.x", linear.x, norm.out);
}

absl::Status CheckSameView(const char* what, const TensorView& view, const TensorView& expected) {
  if (view.data == expected.data && view.rows == expected.rows && view.cols == expected.cols &&
      view.stride == expected.stride) {
    return absl::OkStatus();
  }
  return InvalidArgumentError(StrFormat("%s is a view of [%d, %d], expected the [%d, %d] that the op before it writes",
                                        what, view.rows, view.cols, expected.rows, expected.cols));
}

absl::Status CheckRopeTable(const RopeTableParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckIds("RopeTable: positions", params.positions, INT32_MAX));
  return CheckMatrix("RopeTable: cos_sin", params.cos_sin, static_cast<int64_t>(params.positions.size()),
                     2 * static_cast<int64_t>(params.inv_freq.size()));
}

absl::Status CheckRopeAndStoreKv(const RopeAndStoreKvParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckKv("RopeAndStoreKv", params.kv));
  QUIRE_RETURN_IF_ERROR(CheckRange("RopeAndStoreKv: num_heads", params.num_heads, 1, INT32_MAX));
  const int64_t rows = static_cast<int64_t>(params.slot_mapping.size());
  const int64_t heads = int64_t{params.num_heads} + 2 * int64_t{params.kv.num_kv_heads};
  QUIRE_RETURN_IF_ERROR(CheckMatrix("RopeAndStoreKv: qkv", params.qkv, rows, heads * params.kv.head_dim));
  QUIRE_RETURN_IF_ERROR(CheckMatrix("RopeAndStoreKv: cos_sin", params.cos_sin, rows, params.cos_sin.cols));
  if (params.cos_sin.cols % 2 != 0 || params.cos_sin.cols > params.kv.head_dim) {
    return InvalidArgumentError(StrFormat("RopeAndStoreKv: cos_sin has %d columns, expected an even number up to %d",
                                          params.cos_sin.cols, params.kv.head_dim));
  }
  return CheckIds("RopeAndStoreKv: slot_mapping", params.slot_mapping, params.kv.num_blocks * params.kv.block_size);
}

absl::Status CheckAttentionBatch(const AttentionBatch& batch) {
  const int64_t num_seqs = static_cast<int64_t>(batch.context_lens.size());
  QUIRE_RETURN_IF_ERROR(
      CheckEqual("PlanAttention: cu_q_lens size", static_cast<int64_t>(batch.cu_q_lens.size()), num_seqs + 1));
  QUIRE_RETURN_IF_ERROR(CheckEqual("PlanAttention: cu_q_lens[0]", batch.cu_q_lens[0], 0));
  for (int64_t s = 0; s < num_seqs; ++s) {
    const int64_t rows = int64_t{batch.cu_q_lens[s + 1]} - batch.cu_q_lens[s];
    if (rows < 1 || rows > batch.context_lens[s]) {
      return InvalidArgumentError(StrFormat("PlanAttention: sequence %d has %d rows, expected 1..%d (its context)", s,
                                            rows, batch.context_lens[s]));
    }
  }
  if (batch.block_table_stride < 0 ||
      static_cast<int64_t>(batch.block_tables.size()) < num_seqs * batch.block_table_stride) {
    return InvalidArgumentError(StrFormat("PlanAttention: block_tables has %d ids, expected %d rows of %d",
                                          batch.block_tables.size(), num_seqs, batch.block_table_stride));
  }
  return absl::OkStatus();
}

absl::Status CheckPagedAttention(const PagedAttentionParams& params, const AttentionBatch& batch) {
  const PagedKvView& kv = params.kv;
  QUIRE_RETURN_IF_ERROR(CheckKv("PagedAttention", kv));
  if (params.num_heads < 1 || params.num_heads % kv.num_kv_heads != 0) {
    return InvalidArgumentError(StrFormat("PagedAttention: num_heads is %d, expected a multiple of num_kv_heads %d",
                                          params.num_heads, kv.num_kv_heads));
  }
  const int64_t rows = batch.cu_q_lens.back();
  const int64_t cols = int64_t{params.num_heads} * kv.head_dim;
  QUIRE_RETURN_IF_ERROR(CheckMatrix("PagedAttention: q", params.q, rows, cols));
  QUIRE_RETURN_IF_ERROR(CheckMatrix("PagedAttention: out", params.out, rows, cols));
  if (params.logsumexp.data != nullptr) {
    QUIRE_RETURN_IF_ERROR(CheckMatrix("PagedAttention: logsumexp", params.logsumexp, rows, params.num_heads));
  }
  QUIRE_RETURN_IF_ERROR(CheckRange("PagedAttention: window", params.window, 0, INT32_MAX));
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const int64_t num_blocks = (int64_t{batch.context_lens[s]} + kv.block_size - 1) / kv.block_size;
    if (num_blocks > batch.block_table_stride) {
      return InvalidArgumentError(StrFormat("PagedAttention: sequence %d needs %d blocks, its table has %d", s,
                                            num_blocks, batch.block_table_stride));
    }
    const auto table = batch.block_tables.subspan(s * batch.block_table_stride, num_blocks);
    QUIRE_RETURN_IF_ERROR(CheckIds("PagedAttention: block_tables", table, kv.num_blocks));
  }
  return absl::OkStatus();
}

absl::Status CheckSiluMul(const SiluMulParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckMatrix("SiluMul: out", params.out, params.gate_up.rows, params.out.cols));
  return CheckMatrix("SiluMul: gate_up", params.gate_up, params.gate_up.rows, 2 * params.out.cols);
}

absl::Status CheckGatherRows(const GatherRowsParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckMatrix("GatherRows: x", params.x, params.x.rows, params.x.cols));
  QUIRE_RETURN_IF_ERROR(CheckIds("GatherRows: rows", params.rows, params.x.rows));
  return CheckMatrix("GatherRows: out", params.out, static_cast<int64_t>(params.rows.size()), params.x.cols);
}

absl::Status CheckCopyBlocks(const CopyBlocksParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckKv("CopyBlocks", params.kv));
  const HostKvView& host = params.host;
  if (host.num_blocks < 0 ||
      (host.num_blocks > 0 && (host.data == nullptr || host.stride < params.kv.bytes_per_block()))) {
    return InvalidArgumentError(StrFormat("CopyBlocks: %d host blocks %d bytes apart, a block has %d", host.num_blocks,
                                          host.stride, params.kv.bytes_per_block()));
  }
  const int64_t last = params.kv.num_blocks + host.num_blocks - 1;
  for (const BlockCopyIds& copy : params.copies) {
    QUIRE_RETURN_IF_ERROR(CheckRange("CopyBlocks: src", copy.src, 0, last));
    QUIRE_RETURN_IF_ERROR(CheckRange("CopyBlocks: dst", copy.dst, 0, last));
  }
  return absl::OkStatus();
}

absl::Status CheckSampleTokens(const SampleTokensParams& params) {
  const int64_t num_rows = params.logits.rows, vocab = params.logits.cols;
  QUIRE_RETURN_IF_ERROR(CheckMatrix("SampleTokens: logits", params.logits, num_rows, vocab));
  QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: vocabulary", vocab, 1, INT32_MAX));
  QUIRE_RETURN_IF_ERROR(CheckEqual("SampleTokens: sampled size", static_cast<int64_t>(params.sampled.size()),
                                   static_cast<int64_t>(params.rows.size())));
  QUIRE_RETURN_IF_ERROR(CheckEqual("SampleTokens: scored size", static_cast<int64_t>(params.scored.size()),
                                   static_cast<int64_t>(params.scores.size())));
  bool wants_logprobs = !params.scores.empty();
  for (const SampleRow& row : params.rows) {
    QUIRE_RETURN_IF_ERROR(CheckSampleRow(row, num_rows, vocab));
    wants_logprobs |= row.num_logprobs != SampleRow::kNoLogprobs;
  }
  for (const ScoreRow& row : params.scores) {
    QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: logits_row", row.logits_row, 0, num_rows - 1));
    QUIRE_RETURN_IF_ERROR(CheckRange("SampleTokens: target_id", row.target_id, 0, vocab - 1));
    QUIRE_RETURN_IF_ERROR(CheckLogprobCount("SampleTokens: num_logprobs", row.num_logprobs, -1));
  }
  if (wants_logprobs && params.logprobs == nullptr) {
    return InvalidArgumentError("SampleTokens: log-probabilities are wanted, but there is no place for them");
  }
  return absl::OkStatus();
}

}  // namespace quire
