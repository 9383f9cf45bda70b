#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "kernels/base/sampling_rules.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/tensor_view.h"

// The operations a model is made of. Names of dimensions, used in all comments:
//   T   tokens of the step (rows of the flat batch)      S   sequences of the step
//   H   hidden size                                      V   vocabulary size
//   HQ  query heads      HKV  key/value heads            D   head size
//   N   outputs of a linear layer      K  its inputs     B   tokens in a KV block
//
// Every op checks shapes and types in every build and answers kInvalidArgument naming the dimension, what was expected
// and what came. Views are in the backend's memory unless a comment says host. An op has finished, as far as the next
// op can tell, when it returns; values in host memory (SampleTokens) are there then. Between BeginStep and EndStep a
// backend may put ops off. None allocates after warm-up with the same sizes.
namespace quire {

// --- weights

// `rows` x `cols` values of one matrix as a model file stores them (host memory, any alignment), `row_bytes` apart.
struct WeightView {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  // If not empty (size rows): row r of the packed matrix is stored row row_order[r]. Undoes GGUF's permuted q/k rows.
  absl::Span<const int32_t> row_order = {};
};

// Weights in the layout of a backend. Immutable, owned by whoever packed it. Must not outlive its backend.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  virtual int64_t rows() const = 0;   // N: sum over the parts
  virtual int64_t cols() const = 0;   // K
  virtual int64_t bytes() const = 0;  // of packed storage: what one pass over all rows reads
};

// --- parameters of the ops

// out[t, :] = row ids[t] of table. ids: host [T], each in [0, V). out: [T, H].
struct EmbeddingLookupParams {
  absl::Span<const int32_t> ids;
  const PackedWeight* table = nullptr;
  TensorView out;
};

// residual += delta (if delta.data is not null), then out = residual / sqrt(mean(residual^2) + epsilon) * weight.
// residual, delta, out: [T, H]; weight: f32 [H]. out may not alias residual.
struct AddRmsNormParams {
  TensorView residual;
  TensorView delta;
  const float* weight = nullptr;
  float epsilon = 0;
  TensorView out;
};

// out = x * weight^T (+ bias). x: [T, K]; out: [T, N]; bias: f32 [N] or null.
struct LinearParams {
  TensorView x;
  const PackedWeight* weight = nullptr;
  const float* bias = nullptr;
  TensorView out;
};

// The rotation of each token, shared by all layers of a step: for i < D_rot/2 with angle = position * inv_freq[i]
// (computed in double): cos_sin[t, i] = cos * attention_factor, cos_sin[t, D_rot/2 + i] = sin * attention_factor.
// positions: host [T], >= 0. inv_freq: host f32 [D_rot / 2]. cos_sin: [T, D_rot].
struct RopeTableParams {
  absl::Span<const int32_t> positions;
  absl::Span<const float> inv_freq;
  float attention_factor = 1;
  TensorView cos_sin;
};

// K and V of one layer, [block][kv_head][K: slot x D | V: slot x D], elements of `dtype`, one contiguous run a block
// and head; of kI8 the run ends with the scales, f32 [K: slot | V: slot]. Only kernels index into it.
struct PagedKvView {
  void* data = nullptr;
  DType dtype = DType::kF16;
  int64_t num_blocks = 0;
  int32_t block_size = 0;  // B: 1, 8, 16, 32 or 64
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;  // a multiple of 2, at most 256

  int64_t bytes_per_block() const { return int64_t{2} * block_size * num_kv_heads * KvRowBytes(dtype, head_dim); }
};

// Rotates q and k in place, then stores k and v into the cache at the given slots.
// qkv: [T, (HQ + 2 HKV) * D], the heads of q, then of k, then of v. Rotation pairs are (i, i + D_rot/2) within a head
// (half-split), dimensions from D_rot on stay. slot_mapping: host [T], slot = block * B + offset, distinct.
// An f16 cache saturates to +-65504, one of e4m3 to +-448.
struct RopeAndStoreKvParams {
  TensorView qkv;
  int32_t num_heads = 0;
  TensorView cos_sin;  // [T, D_rot]
  absl::Span<const int32_t> slot_mapping;
  PagedKvView kv;
};

// Which keys each token sees: host arrays, valid until the last PagedAttention of the step.
struct AttentionBatch {
  absl::Span<const int32_t>
      cu_q_lens;  // [S + 1]: rows cu_q_lens[s] .. cu_q_lens[s+1] - 1 belong to sequence s; none is empty
  absl::Span<const int32_t>
      context_lens;  // [S]: tokens of s in the cache, this step's own included. The last row of s is at
                     // position context_lens[s] - 1, the one before at context_lens[s] - 2, ...
  absl::Span<const int32_t> block_tables;  // [S, block_table_stride]: block ids in order of position
  int64_t block_table_stride = 0;
};

// Work split of one step, made once a step and used by every layer. Reusable; holds its own memory.
class AttentionPlan {
 public:
  virtual ~AttentionPlan() = default;
};

// Causal attention of each row over positions 0 .. its own, through the block table. score = q.k * scale, then soft
// cap, then ALiBi, then mask; out = softmax(scores) V. Key chunks of 256 at absolute positions: kernels/README.md. q:
// [T, HQ * D]; out: [T, HQ * D].
struct PagedAttentionParams {
  const AttentionPlan* plan = nullptr;
  TensorView q;
  PagedKvView kv;
  int32_t num_heads = 0;
  float scale = 0;
  int32_t window = 0;                   // > 0: a query sees this many keys, itself included
  float logit_softcap = 0;              // > 0: score = cap * tanh(score / cap)
  const float* sinks = nullptr;         // f32 [HQ]: one more logit a head in the softmax's sum, without a value
  const float* alibi_slopes = nullptr;  // f32 [HQ]: score += slope * (key position - query position)
  TensorView out;
  TensorView logsumexp;  // f32 [T, HQ], or null data: log of the softmax's sum, sink included
};

// out = silu(gate) * up. gate_up: [T, 2 I], gate in the first I columns; out: [T, I].
struct SiluMulParams {
  TensorView gate_up;
  TensorView out;
};

// out[i, :] = x[rows[i], :]. rows: host [R], each in [0, T). x: [T, H]; out: [R, H].
struct GatherRowsParams {
  absl::Span<const int32_t> rows;
  TensorView x;
  TensorView out;
};

// Copies whole KV blocks of one layer, in order: dst's K and V become src's. Ids from kv.num_blocks on name blocks of
// `host`. The result is as if each copy had ended before the next one began, and all before the next op.
struct BlockCopyIds {
  int32_t src = 0;
  int32_t dst = 0;
};
// Blocks of one layer in host memory (Backend::AllocateHost), `stride` bytes apart, each like one of a PagedKvView.
struct HostKvView {
  void* data = nullptr;
  int64_t num_blocks = 0;
  int64_t stride = 0;
};
struct CopyBlocksParams {
  absl::Span<const BlockCopyIds> copies;  // host
  PagedKvView kv;
  HostKvView host = {};
};

// --- sampling (host values; the logic is kernels/sampling.h on every CPU backend)

// What few samples ask for. All of it is host memory.
struct SampleExtras {
  absl::Span<const int32_t> banned_ids = {};  // logits taken as -inf
  // [ceil(V / 32)]: so are those of ids i whose bit i % 32 of word i / 32 is 0. Empty: none.
  absl::Span<const uint32_t> allowed_mask = {};
  const SamplingRules* rules = nullptr;   // null: none
  absl::Span<const int32_t> tokens = {};  // the sequence so far, prompt first. Only rules read it
  int32_t prompt_len = 0;                 // tokens of the prompt among them
  float mirostat_bound = 0;               // if the rules keep state: in bits, at first twice their tau
};
inline constexpr SampleExtras kNoSampleExtras = {};

// How the next token of one sequence is chosen from its row of logits. Order: raw log-probabilities are taken; ids that
// may not come, rules for logits; [temperature == 0: the lowest id with the highest logit]; rules for distributions,
// / temperature, min_p, top_k, top_p, draw. kernels/README.md has it in full.
//
// Small, because a step has one for each sequence.
struct SampleRow {
  const SampleExtras& extras() const { return more == nullptr ? kNoSampleExtras : *more; }

  int32_t logits_row = 0;
  float temperature = 0;  // >= 0; 0 is greedy
  float min_p = 0;        // [0, 1]; keeps p >= min_p * max p; 0 is off
  int32_t top_k = 0;      // <= 0 or >= V is off
  float top_p = 1;        // (0, 1]; the smallest set whose sum reaches it, at least one; 1 is off
  uint64_t seed = 0;      // the draw is UniformFloat(seed, sequence_index, output_position, kDraw)
  uint32_t sequence_index = 0;
  uint32_t output_position = 0;
  int32_t num_logprobs = kNoLogprobs;     // how many best ids to report beside the chosen one; -1: the whole vocabulary
  bool wants_processed_logprobs = false;  // of what the token is drawn from, instead of raw ones
  const SampleExtras* more = nullptr;     // null: no extras

  static constexpr int32_t kNoLogprobs = -2;
};

// Log-probability of a known next token (prompt log-probabilities).
struct ScoreRow {
  int32_t logits_row = 0;
  int32_t target_id = 0;
  int32_t num_logprobs = 0;  // as above; 0: the target only
};

// What one row gave. `logprobs_begin`/`logprobs_count` index into TokenLogprobs of the same result.
struct SampledToken {
  int32_t token_id = -1;    // -1 if bad_logits
  bool bad_logits = false;  // a NaN or +inf among the raw logits, or no finite one left
  int32_t logprobs_begin =
      0;  // entries: first the chosen (or target) token, then the best ids, best first, ties by id;
  int32_t logprobs_count = 0;  // the chosen one is repeated there if it is among the best. Count 0 if not asked for.
  int32_t rank = 0;  // 1-based rank of the chosen token by log-probability, ties by id; 0 if these were not asked for
  float mirostat_bound = 0;  // for the next token's row, if the rules keep state
};

// Flat storage of log-probabilities: natural log of the softmax of the raw logits; processed ones are of the
// probability that a token is drawn with (greedy: of the softmax behind the rules for logits), without ids that cannot
// come. Reused between steps.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

// logits: [R, V] (may be overwritten). Sets sampled[i] for rows[i]; appends to *logprobs with absolute indices.
// `logprobs` is any growable buffer the caller keeps between steps so that nothing is allocated in steady state.
struct SampleTokensParams {
  TensorView logits;
  absl::Span<const SampleRow> rows;
  absl::Span<SampledToken> sampled;  // size rows.size()
  absl::Span<const ScoreRow> scores;
  absl::Span<SampledToken> scored;  // size scores.size()
  std::vector<TokenLogprob>* logprobs = nullptr;
};

// Seconds spent since the last ResetTimes, by kind of op.
struct OpTimes {
  double linear = 0;
  double attention = 0;
  double sampling = 0;
  double other = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Packs matrices of equal `cols` one below the other (q, k, v; gate, up) into one weight. Formats may differ.
  // kInvalidArgument for a format the backend cannot hold or for cols that the format's block does not divide.
  virtual absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(absl::Span<const WeightView> parts) = 0;
  virtual std::unique_ptr<AttentionPlan> CreateAttentionPlan() = 0;

  virtual absl::Status EmbeddingLookup(const EmbeddingLookupParams& params) = 0;
  virtual absl::Status AddRmsNorm(const AddRmsNormParams& params) = 0;
  virtual absl::Status Linear(const LinearParams& params) = 0;
  virtual absl::Status RopeTable(const RopeTableParams& params) = 0;
  virtual absl::Status RopeAndStoreKv(const RopeAndStoreKvParams& params) = 0;
  virtual absl::Status PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) = 0;
  virtual absl::Status PagedAttention(const PagedAttentionParams& params) = 0;
  virtual absl::Status SiluMul(const SiluMulParams& params) = 0;
  virtual absl::Status GatherRows(const GatherRowsParams& params) = 0;
  virtual absl::Status CopyBlocks(const CopyBlocksParams& params) = 0;
  virtual absl::Status SampleTokens(const SampleTokensParams& params) = 0;

  // out += x * weight^T (+ bias).
  virtual absl::Status LinearAdd(const LinearParams&) { return absl::UnimplementedError("LinearAdd"); }

  // Ops that follow one another, as one: the same bits, but what only passes between them (norm.out, gate_up) is
  // working memory with unspecified contents afterwards. norm.delta is not used. A backend overrides what it can do
  // better.
  virtual absl::Status NormLinear(const AddRmsNormParams& norm, const LinearParams& linear) {
    QUIRE_RETURN_IF_ERROR(AddRmsNorm(norm));
    return Linear(linear);
  }
  // rope.qkv is linear.out.
  virtual absl::Status NormLinearRope(const AddRmsNormParams& norm, const LinearParams& linear,
                                      const RopeAndStoreKvParams& rope) {
    QUIRE_RETURN_IF_ERROR(NormLinear(norm, linear));
    return RopeAndStoreKv(rope);
  }
  // silu.gate_up is linear.out.
  virtual absl::Status NormLinearSilu(const AddRmsNormParams& norm, const LinearParams& linear,
                                      const SiluMulParams& silu) {
    QUIRE_RETURN_IF_ERROR(NormLinear(norm, linear));
    return SiluMul(silu);
  }

  // Brackets ops whose views, spans, weights and plans stay as they are until EndStep: a backend may check them when
  // called and carry them out together. EndStep (also after a failed op) returns when all is done.
  virtual void BeginStep() {}
  virtual void EndStep() {}

  virtual OpTimes times() const = 0;
  virtual void ResetTimes() = 0;
};

}  // namespace quire
