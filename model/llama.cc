#include "model/llama.h"

#include <cmath>
#include <utility>

#include "kernels/base/status_macros.h"

namespace quire {

absl::StatusOr<Buffer> UploadVector(Backend& backend, const std::vector<float>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  QUIRE_ASSIGN_OR_RETURN(Buffer buffer, backend.Allocate(bytes));
  QUIRE_RETURN_IF_ERROR(backend.CopyToDevice(buffer.data(), values.data(), bytes));
  return buffer;
}

absl::StatusOr<LlamaLayer::Projection> LlamaLayer::LoadProjection(Backend& backend, const ModelConfig& config,
                                                                  WeightSource& weights, absl::Span<const Part> parts,
                                                                  int32_t index) {
  Projection projection;
  std::vector<WeightView> views;
  std::vector<float> biases;
  for (Part part : parts) {
    QUIRE_ASSIGN_OR_RETURN(views.emplace_back(), weights.Matrix(part, index));
    if (!ShapeOf(config, part).has_bias) continue;
    QUIRE_ASSIGN_OR_RETURN(const std::vector<float> bias, weights.Bias(part, index));
    biases.insert(biases.end(), bias.begin(), bias.end());
  }
  QUIRE_ASSIGN_OR_RETURN(projection.weight, backend.ops().PackWeight(views));
  weights.Release();
  if (!biases.empty()) {
    QUIRE_ASSIGN_OR_RETURN(projection.bias, UploadVector(backend, biases));
  }
  return projection;
}

absl::StatusOr<std::unique_ptr<LlamaLayer>> LlamaLayer::Load(Backend& backend, const ModelConfig& config,
                                                             WeightSource& weights, int32_t index) {
  std::unique_ptr<LlamaLayer> layer(new LlamaLayer(config, config.window(index)));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> attention_norm, weights.Vector(Part::kAttentionNorm, index));
  QUIRE_ASSIGN_OR_RETURN(layer->attention_norm_, UploadVector(backend, attention_norm));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> mlp_norm, weights.Vector(Part::kMlpNorm, index));
  QUIRE_ASSIGN_OR_RETURN(layer->mlp_norm_, UploadVector(backend, mlp_norm));
  const auto load = [&](absl::Span<const Part> parts) {
    return LoadProjection(backend, config, weights, parts, index);
  };
  QUIRE_ASSIGN_OR_RETURN(layer->qkv_, load({Part::kQuery, Part::kKey, Part::kValue}));
  QUIRE_ASSIGN_OR_RETURN(layer->output_, load({Part::kOutput}));
  QUIRE_ASSIGN_OR_RETURN(layer->gate_up_, load({Part::kGate, Part::kUp}));
  QUIRE_ASSIGN_OR_RETURN(layer->down_, load({Part::kDown}));
  return layer;
}

AddRmsNormParams LlamaLayer::Norm(const LayerStep& step, const Buffer& weight) const {
  return {step.residual, /*delta=*/{}, weight.as<const float>(), config_.rms_norm_eps, step.normed};
}

absl::Status LlamaLayer::Attention(const LayerStep& step, const PagedKvView& kv) const {
  QUIRE_RETURN_IF_ERROR(step.ops->NormLinearRope(Norm(step, attention_norm_), qkv_.From(step.normed, step.qkv),
                                                 {step.qkv, config_.num_heads, step.cos_sin, step.slot_mapping, kv}));
  PagedAttentionParams params;
  params.plan = step.plan;
  params.q = step.qkv.slice_cols(0, step.attention.cols);
  params.kv = kv;
  params.num_heads = config_.num_heads;
  params.scale = 1 / std::sqrt(static_cast<float>(config_.head_dim));
  params.window = window_;
  params.out = step.attention;
  QUIRE_RETURN_IF_ERROR(step.ops->PagedAttention(params));
  return step.ops->LinearAdd(output_.From(step.attention, step.residual));
}

absl::Status LlamaLayer::Mlp(const LayerStep& step) const {
  QUIRE_RETURN_IF_ERROR(step.ops->NormLinearSilu(Norm(step, mlp_norm_), gate_up_.From(step.normed, step.gate_up),
                                                 {step.gate_up, step.mlp}));
  return step.ops->LinearAdd(down_.From(step.mlp, step.residual));
}

absl::Status LlamaLayer::Forward(const LayerStep& step, const PagedKvView& kv) const {
  QUIRE_RETURN_IF_ERROR(Attention(step, kv));
  return Mlp(step);
}

int64_t LlamaLayer::weight_bytes() const {
  return qkv_.weight->bytes() + output_.weight->bytes() + gate_up_.weight->bytes() + down_.weight->bytes();
}

}  // namespace quire
