#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/weight_source.h"

namespace quire {

// What a layer works on during one step of T tokens; see kernels/ops.h for the names of dimensions.
struct LayerStep {
  Ops* ops = nullptr;
  TensorView residual;                     // [T, H] in and out
  TensorView normed;                       // [T, H]; this and all that follows up to mlp: working memory
  TensorView qkv;                          // [T, (HQ + 2 HKV) * D]
  TensorView attention;                    // [T, HQ * D]
  TensorView gate_up;                      // [T, 2 I]
  TensorView mlp;                          // [T, I]
  TensorView cos_sin;                      // [T, D_rot]
  absl::Span<const int32_t> slot_mapping;  // [T]
  const AttentionPlan* plan = nullptr;
};

// One layer of the Llama family: norm, attention with rotary positions, norm, gated MLP, both added to the residual.
// Holds the packed weights; the backend and the configuration must outlive it. One thread.
class LlamaLayer {
 public:
  static absl::StatusOr<std::unique_ptr<LlamaLayer>> Load(Backend& backend, const ModelConfig& config,
                                                          WeightSource& weights, int32_t index);

  // Uses all rows of the views in `step`, within a step of the ops.
  absl::Status Forward(const LayerStep& step, const PagedKvView& kv) const;

  // Packed bytes that a step of one token reads.
  int64_t weight_bytes() const;

 private:
  // A linear layer: parts below each other, and their biases likewise (null data without).
  struct Projection {
    std::unique_ptr<PackedWeight> weight;
    Buffer bias;

    LinearParams From(TensorView x, TensorView out) const { return {x, weight.get(), bias.as<const float>(), out}; }
  };
  static absl::StatusOr<Projection> LoadProjection(Backend& backend, const ModelConfig& config, WeightSource& weights,
                                                   absl::Span<const Part> parts, int32_t index);
  AddRmsNormParams Norm(const LayerStep& step, const Buffer& weight) const;
  absl::Status Attention(const LayerStep& step, const PagedKvView& kv) const;
  absl::Status Mlp(const LayerStep& step) const;

  LlamaLayer(const ModelConfig& config, int32_t window) : config_(config), window_(window) {}

  const ModelConfig& config_;
  const int32_t window_;              // keys that a query sees; 0: all
  Buffer attention_norm_, mlp_norm_;  // f32 [H]
  Projection qkv_, output_, gate_up_, down_;
};

// Copies `values` into the backend's memory.
absl::StatusOr<Buffer> UploadVector(Backend& backend, const std::vector<float>& values);

}  // namespace quire
