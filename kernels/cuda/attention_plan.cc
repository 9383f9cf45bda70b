#include "kernels/cuda/attention_plan.h"

namespace quire::cuda {

void CudaAttentionPlan::Begin(const AttentionBatch& batch, bool decodes) {
  batch_ = batch;
  is_decode_ = decodes && batch.cu_q_lens.back() == static_cast<int32_t>(batch.context_lens.size());
  num_cuts_ = 0;
}

const CudaAttentionPlan::Cut& CudaAttentionPlan::CutFor(int32_t window, int32_t group, int32_t target_splits) {
  auto cut = cuts_.begin();
  for (size_t i = 0; i < num_cuts_; ++i, ++cut) {
    if (cut->window == window && cut->group == group && cut->target_splits == target_splits) return *cut;
  }
  if (cut == cuts_.end()) cut = cuts_.emplace(cut);
  ++num_cuts_;
  cut->window = window, cut->group = group, cut->target_splits = target_splits;
  if (is_decode_) {
    PlanDecode(batch_.context_lens, {.window = window, .target_splits = target_splits}, &cut->decode);
    cut->num_splits = static_cast<int32_t>(cut->decode.splits.size());
  } else {
    PlanPrefill(batch_.cu_q_lens, group, &cut->tiles);
  }
  return *cut;
}

}  // namespace quire::cuda
