#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/status_macros.h"
#include "kernels/reference/reference_ops.h"

namespace quire::reference {
namespace {

// The K and V rows of one sequence and head, by position.
struct SequenceKv {
  const PagedKvView& kv;
  const int32_t* block_table;
  int64_t kv_head;
  KvRunLayout layout = LayoutOf(kv);

  const float* k(int64_t position) const {
    const std::byte* run = KvRun(kv, layout, block_table[position / kv.block_size], kv_head);
    return reinterpret_cast<const float*>(run + layout.k_row(static_cast<int32_t>(position % kv.block_size)));
  }
  const float* v(int64_t position) const { return k(position) + int64_t{kv.block_size} * kv.head_dim; }
};

// Scores of one query with kCount keys from `position` on. Each dot product is one sum in ascending order; several run
// side by side because one alone would wait for its own additions.
template <int kCount>
void DotKeys(const float* q, const SequenceKv& keys, int64_t position, float* scores) {
  const float* k[kCount];
  float sums[kCount] = {};
  for (int j = 0; j < kCount; ++j) k[j] = keys.k(position + j);
  for (int64_t i = 0; i < keys.kv.head_dim; ++i) {
    for (int j = 0; j < kCount; ++j) sums[j] += q[i] * k[j][i];
  }
  std::copy_n(sums, kCount, scores);
}

float AdjustScore(const PagedAttentionParams& params, int64_t head, int64_t distance, float dot) {
  float score = dot * params.scale;
  if (params.logit_softcap > 0) score = params.logit_softcap * std::tanh(score / params.logit_softcap);
  if (params.alibi_slopes != nullptr) score += params.alibi_slopes[head] * static_cast<float>(-distance);
  return score;
}

// Attention of one row and head over keys first .. position. `scores` has room for all of them.
void AttendRow(const PagedAttentionParams& params, const SequenceKv& kv, int64_t row, int64_t head, int64_t position,
               float* scores) {
  const int64_t dim = params.kv.head_dim;
  const float* q = params.q.f32().row(row) + head * dim;
  const int64_t first = params.window > 0 ? std::max<int64_t>(0, position - params.window + 1) : 0;
  const int64_t count = position + 1 - first;
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) DotKeys<8>(q, kv, first + j, scores + j);
  for (; j < count; ++j) DotKeys<1>(q, kv, first + j, scores + j);

  float max = params.sinks != nullptr ? params.sinks[head] : -std::numeric_limits<float>::infinity();
  for (j = 0; j < count; ++j) {
    scores[j] = AdjustScore(params, head, position - (first + j), scores[j]);
    max = std::max(max, scores[j]);
  }
  double sum = params.sinks != nullptr ? std::exp(static_cast<double>(params.sinks[head]) - max) : 0.0;
  float* out = params.out.f32().row(row) + head * dim;
  std::fill_n(out, dim, 0.0f);
  for (j = 0; j < count; ++j) {
    const float weight = static_cast<float>(std::exp(static_cast<double>(scores[j]) - max));
    const float* v = kv.v(first + j);
    sum += weight;
    for (int64_t i = 0; i < dim; ++i) out[i] += weight * v[i];
  }
  for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(out[i] / sum);
  if (params.logsumexp.data != nullptr) {
    params.logsumexp.f32().row(row)[head] = static_cast<float>(max + std::log(sum));
  }
}

}  // namespace

absl::Status ReferenceOps::PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) {
  OpTimer timer(&times_.attention);
  QUIRE_RETURN_IF_ERROR(CheckAttentionBatch(batch));
  auto& reference_plan = static_cast<ReferencePlan&>(plan);
  reference_plan.batch = batch;
  reference_plan.rows.clear();
  int32_t longest = 0;
  for (size_t s = 0; s < batch.context_lens.size(); ++s) {
    const int32_t rows = batch.cu_q_lens[s + 1] - batch.cu_q_lens[s];
    longest = std::max(longest, batch.context_lens[s]);
    for (int32_t r = 0; r < rows; ++r) {
      reference_plan.rows.push_back({static_cast<int32_t>(s), batch.context_lens[s] - rows + r});
    }
  }
  reference_plan.scores.resize(pool_.num_threads());
  for (std::vector<float>& scores : reference_plan.scores) {
    if (static_cast<int32_t>(scores.size()) < longest) scores.resize(longest);
  }
  return absl::OkStatus();
}

absl::Status ReferenceOps::PagedAttention(const PagedAttentionParams& params) {
  OpTimer timer(&times_.attention);
  if (params.plan == nullptr) return absl::InvalidArgumentError("PagedAttention: no plan");
  const auto& plan = static_cast<const ReferencePlan&>(*params.plan);
  QUIRE_RETURN_IF_ERROR(CheckPagedAttention(params, plan.batch));
  QUIRE_RETURN_IF_ERROR(CheckKvType("PagedAttention", params.kv, {DType::kF32}));
  const int64_t num_heads = params.num_heads, group = num_heads / params.kv.num_kv_heads;
  const int64_t num_items = static_cast<int64_t>(plan.rows.size()) * num_heads;
  // Scratch belongs to the plan, which the model passes as constant to every layer.
  auto& scores = const_cast<ReferencePlan&>(plan).scores;
  pool_.ParallelFor(num_items, num_heads, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / num_heads, head = item % num_heads;
      const auto [sequence, position] = plan.rows[row];
      const SequenceKv kv{params.kv, plan.batch.block_tables.data() + sequence * plan.batch.block_table_stride,
                          head / group};
      AttendRow(params, kv, row, head, position, scores[thread].data());
    }
  });
  return absl::OkStatus();
}

}  // namespace quire::reference
