#include "model/transformer.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "model/rope.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(Backend& backend, const ModelConfig& config,
                                                               const LayerGroups& groups, WeightSource& weights,
                                                               int32_t max_tokens) {
  std::unique_ptr<Transformer> model(new Transformer(backend, config));
  const auto pack = [&](Part part) -> absl::StatusOr<std::unique_ptr<PackedWeight>> {
    QUIRE_ASSIGN_OR_RETURN(const WeightView view, weights.Matrix(part, 0));
    auto packed = backend.ops().PackWeight({view});
    weights.Release();
    return packed;
  };
  QUIRE_ASSIGN_OR_RETURN(model->embedding_, pack(Part::kEmbedding));
  if (!config.tie_word_embeddings) {
    QUIRE_ASSIGN_OR_RETURN(model->own_head_, pack(Part::kHead));
  }
  for (int32_t i = 0; i < config.num_layers; ++i) {
    QUIRE_ASSIGN_OR_RETURN(model->layers_.emplace_back(), LlamaLayer::Load(backend, config, weights, i));
  }
  model->group_of_.resize(config.num_layers);
  for (int32_t g = 0; g < groups.size(); ++g) {
    for (const int32_t layer : groups.groups[g].layers) model->group_of_[layer] = g;
    model->plans_.push_back(backend.ops().CreateAttentionPlan());
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<float> final_norm, weights.Vector(Part::kFinalNorm, 0));
  QUIRE_ASSIGN_OR_RETURN(model->final_norm_, UploadVector(backend, final_norm));

  RopeFrequencies rope =
      ComputeRope(config.rope, config.max_position_embeddings, /*sequence_length=*/config.max_position_embeddings);
  model->inv_freq_ = std::move(rope.inv_freq);
  model->rope_attention_factor_ = rope.attention_factor;
  QUIRE_RETURN_IF_ERROR(model->AllocateScratch(max_tokens));
  return model;
}

absl::StatusOr<TensorView> Transformer::NewMatrix(int64_t rows, int64_t cols) {
  QUIRE_ASSIGN_OR_RETURN(Buffer buffer, backend_.Allocate(rows * cols * SizeOf(DType::kF32)));
  const TensorView view = F32Matrix(buffer.as<float>(), rows, cols);
  buffers_.push_back(std::move(buffer));
  return view;
}

absl::Status Transformer::AllocateScratch(int32_t max_tokens) {
  const int64_t rows = max_tokens, hidden = config_.hidden_size, inner = config_.intermediate_size;
  const int64_t query = int64_t{config_.num_heads} * config_.head_dim;
  const int64_t key = int64_t{config_.num_kv_heads} * config_.head_dim;
  QUIRE_ASSIGN_OR_RETURN(scratch_.residual, NewMatrix(rows, hidden));
  QUIRE_ASSIGN_OR_RETURN(scratch_.normed, NewMatrix(rows, hidden));
  QUIRE_ASSIGN_OR_RETURN(scratch_.qkv, NewMatrix(rows, query + 2 * key));
  QUIRE_ASSIGN_OR_RETURN(scratch_.attention, NewMatrix(rows, query));
  QUIRE_ASSIGN_OR_RETURN(scratch_.gate_up, NewMatrix(rows, 2 * inner));
  QUIRE_ASSIGN_OR_RETURN(scratch_.mlp, NewMatrix(rows, inner));
  QUIRE_ASSIGN_OR_RETURN(scratch_.cos_sin, NewMatrix(rows, config_.rope.rotary_dim));
  const int64_t head_rows = std::min(kHeadRows, rows);
  QUIRE_ASSIGN_OR_RETURN(head_residual_, NewMatrix(head_rows, hidden));
  QUIRE_ASSIGN_OR_RETURN(head_normed_, NewMatrix(head_rows, hidden));
  QUIRE_ASSIGN_OR_RETURN(logits_, NewMatrix(head_rows, config_.vocab_size));
  head_rows_.reserve(head_rows);
  head_samples_.reserve(head_rows);
  head_scores_.reserve(head_rows);
  return absl::OkStatus();
}

LayerStep Transformer::StepOf(const ForwardBatch& batch) {
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  LayerStep step = scratch_;
  for (TensorView* view :
       {&step.residual, &step.normed, &step.qkv, &step.attention, &step.gate_up, &step.mlp, &step.cos_sin}) {
    *view = view->slice_rows(0, rows);
  }
  step.ops = &backend_.ops();
  return step;
}

absl::Status Transformer::RunLayers(const ForwardBatch& batch, const LayerStep& step, const KvCache& kv) {
  Ops& ops = backend_.ops();
  QUIRE_RETURN_IF_ERROR(ops.EmbeddingLookup({batch.token_ids, embedding_.get(), step.residual}));
  QUIRE_RETURN_IF_ERROR(ops.RopeTable({batch.positions, inv_freq_, rope_attention_factor_, step.cos_sin}));
  for (int32_t g = 0; g < batch.num_groups(); ++g) {
    const GroupTables group = batch.group(g);
    QUIRE_RETURN_IF_ERROR(ops.PlanAttention(
        {batch.cu_q_lens, batch.context_lens, group.block_tables, group.block_table_stride}, *plans_[g]));
  }
  LayerStep layer_step = step;
  for (size_t i = 0; i < layers_.size(); ++i) {
    layer_step.slot_mapping = batch.group(group_of_[i]).slot_mapping;
    layer_step.plan = plans_[group_of_[i]].get();
    QUIRE_RETURN_IF_ERROR(layers_[i]->Forward(layer_step, kv.layer(static_cast<int32_t>(i))));
  }
  return absl::OkStatus();
}

absl::Status Transformer::RunHead(const ForwardBatch& batch, const LayerStep& step, size_t begin, size_t end,
                                  StepResult* result) {
  const size_t num_samples = batch.samples.size();
  head_rows_.clear();
  head_samples_.clear();
  head_scores_.clear();
  // Several samples of one row (n > 1 after a prompt) stand next to each other and share its logits.
  const auto logits_row_of = [&](int32_t row) {
    if (head_rows_.empty() || head_rows_.back() != row) head_rows_.push_back(row);
    return static_cast<int32_t>(head_rows_.size()) - 1;
  };
  for (size_t i = begin; i < end; ++i) {
    if (i < num_samples) {
      SampleRow& sample = head_samples_.emplace_back(batch.samples[i]);
      sample.logits_row = logits_row_of(sample.logits_row);
    } else {
      ScoreRow& score = head_scores_.emplace_back(batch.scores[i - num_samples]);
      score.logits_row = logits_row_of(score.logits_row);
    }
  }

  Ops& ops = backend_.ops();
  const auto rows = static_cast<int64_t>(head_rows_.size());
  const TensorView residual = head_residual_.slice_rows(0, rows);
  const TensorView normed = head_normed_.slice_rows(0, rows), logits = logits_.slice_rows(0, rows);
  QUIRE_RETURN_IF_ERROR(ops.GatherRows({head_rows_, step.residual, residual}));
  const PackedWeight* head = own_head_ != nullptr ? own_head_.get() : embedding_.get();
  QUIRE_RETURN_IF_ERROR(ops.NormLinear({residual, {}, final_norm_.as<const float>(), config_.rms_norm_eps, normed},
                                       {normed, head, nullptr, logits}));

  SampleTokensParams params;
  params.logits = logits;
  params.rows = head_samples_;
  params.scores = head_scores_;
  params.sampled = absl::MakeSpan(result->samples).subspan(std::min(begin, num_samples), head_samples_.size());
  params.scored =
      absl::MakeSpan(result->scores).subspan(std::max(begin, num_samples) - num_samples, head_scores_.size());
  params.logprobs = &result->logprobs;
  return ops.SampleTokens(params);
}

absl::Status Transformer::Forward(const ForwardBatch& batch, const KvCache& kv, StepResult* result) {
  result->samples.resize(batch.samples.size());
  result->scores.resize(batch.scores.size());
  result->logprobs.clear();
  if (batch.token_ids.empty()) return absl::OkStatus();
  backend_.ops().BeginStep();
  const absl::Status status = RunStep(batch, kv, result);
  backend_.ops().EndStep();
  return status;
}

absl::Status Transformer::RunStep(const ForwardBatch& batch, const KvCache& kv, StepResult* result) {
  const LayerStep step = StepOf(batch);
  QUIRE_RETURN_IF_ERROR(RunLayers(batch, step, kv));
  const size_t wanted = batch.samples.size() + batch.scores.size();
  const auto chunk = static_cast<size_t>(logits_.rows);
  for (size_t begin = 0; begin < wanted; begin += chunk) {
    QUIRE_RETURN_IF_ERROR(RunHead(batch, step, begin, std::min(begin + chunk, wanted), result));
  }
  return absl::OkStatus();
}

int64_t Transformer::weight_bytes_per_step() const {
  int64_t bytes = own_head_ != nullptr ? own_head_->bytes() : embedding_->bytes();
  for (const auto& layer : layers_) bytes += layer->weight_bytes();
  return bytes;
}

}  // namespace quire
