#pragma once

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/host_ops.h"

namespace quire::reference {

// Weights decoded to f32 in tiles of 16 outputs, [N / 16][K][16], outputs past N zero: a sum stays sequential in k
// while 16 of them advance together.
class PackedF32Weight : public PackedWeight {
 public:
  static constexpr int64_t kTile = 16;

  PackedF32Weight(Buffer memory, int64_t rows, int64_t cols) : memory_(std::move(memory)), rows_(rows), cols_(cols) {}
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  int64_t bytes() const override { return memory_.bytes(); }

  int64_t num_tiles() const { return (rows_ + kTile - 1) / kTile; }
  float* tile(int64_t index) const { return memory_.as<float>() + index * cols_ * kTile; }

 private:
  Buffer memory_;
  int64_t rows_;
  int64_t cols_;
};

class ReferencePlan : public AttentionPlan {
 public:
  struct Row {
    int32_t sequence = 0;
    int32_t position = 0;
  };
  AttentionBatch batch;
  std::vector<Row> rows;                   // of the flat batch
  std::vector<std::vector<float>> scores;  // one a thread, as long as the longest context
};

class ReferenceOps : public HostOps {
 public:
  using HostOps::HostOps;

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(absl::Span<const WeightView> parts) override;
  std::unique_ptr<AttentionPlan> CreateAttentionPlan() override { return std::make_unique<ReferencePlan>(); }

  absl::Status EmbeddingLookup(const EmbeddingLookupParams& params) override;
  absl::Status AddRmsNorm(const AddRmsNormParams& params) override;
  absl::Status Linear(const LinearParams& params) override { return RunLinear(params, /*add=*/false); }
  absl::Status LinearAdd(const LinearParams& params) override { return RunLinear(params, /*add=*/true); }
  absl::Status RopeAndStoreKv(const RopeAndStoreKvParams& params) override;
  absl::Status PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) override;
  absl::Status PagedAttention(const PagedAttentionParams& params) override;
  absl::Status SiluMul(const SiluMulParams& params) override;

 private:
  absl::Status RunLinear(const LinearParams& params, bool add);
};

}  // namespace quire::reference
