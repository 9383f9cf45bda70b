#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/forward_batch.h"
#include "model/kv_cache.h"
#include "model/layer_groups.h"
#include "model/llama.h"
#include "model/step_result.h"
#include "model/weight_source.h"

namespace quire {

// A decoder: embedding, layers, final norm, head. Logits are made for the wanted rows only, at most kHeadRows at a
// time.
//
// Holds packed weights and working memory for `max_tokens` tokens, all allocated by Load. The backend and the
// configuration must outlive it. One thread.
class Transformer {
 public:
  static constexpr int64_t kHeadRows = 64;

  // Errors of `weights` and of the backend.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(Backend& backend, const ModelConfig& config,
                                                           const LayerGroups& groups, WeightSource& weights,
                                                           int32_t max_tokens);

  // Runs a batch that CheckBatch accepted; fills everything of *result but times.
  absl::Status Forward(const ForwardBatch& batch, const KvCache& kv, StepResult* result);

  // Packed bytes that a decode step of one token reads.
  int64_t weight_bytes_per_step() const;

 private:
  Transformer(Backend& backend, const ModelConfig& config) : backend_(backend), config_(config) {}

  absl::Status AllocateScratch(int32_t max_tokens);
  absl::StatusOr<TensorView> NewMatrix(int64_t rows, int64_t cols);
  LayerStep StepOf(const ForwardBatch& batch);
  absl::Status RunStep(const ForwardBatch& batch, const KvCache& kv, StepResult* result);
  absl::Status RunLayers(const ForwardBatch& batch, const LayerStep& step, const KvCache& kv);
  // Wanted rows [begin, end) of samples followed by scores.
  absl::Status RunHead(const ForwardBatch& batch, const LayerStep& step, size_t begin, size_t end, StepResult* result);

  Backend& backend_;
  const ModelConfig& config_;

  std::unique_ptr<PackedWeight> embedding_;
  std::unique_ptr<PackedWeight> own_head_;  // null: the embedding is the head
  std::vector<std::unique_ptr<LlamaLayer>> layers_;
  std::vector<int32_t> group_of_;  // layer group of each layer
  Buffer final_norm_;              // f32 [H]

  std::vector<float> inv_freq_;  // [D_rot / 2]
  float rope_attention_factor_ = 1;

  // Working memory; views of [max_tokens, ...], see LayerStep.
  std::vector<Buffer> buffers_;
  LayerStep scratch_;
  TensorView head_residual_, head_normed_;             // [kHeadRows, H]
  TensorView logits_;                                  // [kHeadRows, V]
  std::vector<std::unique_ptr<AttentionPlan>> plans_;  // one a layer group
  std::vector<int32_t> head_rows_;
  std::vector<SampleRow> head_samples_;
  std::vector<ScoreRow> head_scores_;
};

}  // namespace quire
