#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/weight_arena.h"
#include "kernels/host_ops.h"

namespace quire {

// The ops of the CPU backend: checks, splitting over the threads, and calls of the kernels of one instruction set.
class CpuOps : public HostOps {
 public:
  CpuOps(const GemmKernels& gemm, const VectorKernels& vector, int num_threads)
      : HostOps(num_threads), gemm_(gemm), vector_(vector), attention_scratch_(num_threads) {}

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(absl::Span<const WeightView> parts) override;
  std::unique_ptr<AttentionPlan> CreateAttentionPlan() override { return std::make_unique<CpuAttentionPlan>(); }

  absl::Status EmbeddingLookup(const EmbeddingLookupParams& params) override;
  absl::Status AddRmsNorm(const AddRmsNormParams& params) override;
  absl::Status Linear(const LinearParams& params) override;
  absl::Status RopeAndStoreKv(const RopeAndStoreKvParams& params) override;
  absl::Status PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) override;
  absl::Status PagedAttention(const PagedAttentionParams& params) override;
  absl::Status SiluMul(const SiluMulParams& params) override;

 private:
  // What one thread takes at once: heads of one KV head for the rows of a tile, over some chunks of keys.
  struct AttentionItem {
    int32_t tile = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int32_t chunk_begin = 0;
    int32_t chunk_end = 0;
    int64_t partials = -1;  // offset in partials_; -1: none, the item is complete in itself
  };

  // Fills attend_items_ and merge_items_; returns the floats that partials_ must have.
  int64_t MakeAttentionItems(const PagedAttentionParams& params, const CpuAttentionPlan& plan);
  absl::Status ReserveAttentionMemory(int32_t head_dim, int64_t partial_floats);
  AttentionTask MakeTask(const PagedAttentionParams& params, const CpuAttentionPlan& plan, const AttentionItem& item,
                         int thread) const;

  // Notes that `weight` comes after the one used before it.
  void LearnNext(const CpuPackedWeight& weight);

  const GemmKernels& gemm_;
  const VectorKernels& vector_;
  WeightArena weight_arena_;
  GemmScratch gemm_scratch_;
  // What came after each weight the last time, which is what a model does the next time, too. The pointers are compared
  // only: weights may go.
  struct NextWeight {
    const CpuPackedWeight* weight = nullptr;
    std::vector<const std::byte*> shares;
  };
  std::unordered_map<const CpuPackedWeight*, NextWeight> next_;
  const CpuPackedWeight* last_weight_ = nullptr;
  std::vector<Buffer> attention_scratch_;  // one a thread
  Buffer partials_;
  std::vector<AttentionItem> attend_items_;
  std::vector<AttentionItem> merge_items_;
};

}  // namespace quire
