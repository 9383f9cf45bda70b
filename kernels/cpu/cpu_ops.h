#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/program.h"
#include "kernels/cpu/weight_arena.h"
#include "kernels/host_ops.h"

namespace quire {

// What K and V may be stored as.
inline constexpr std::initializer_list<DType> kCpuKvTypes = {DType::kF32, DType::kF16, DType::kBf16, DType::kI8};

// The ops of the CPU backend: checks, and loops of the kernels of one instruction set. Loops gather in a program that
// runs as one job of the pool: at the end of the op, or, within a step, as late as possible.
class CpuOps : public HostOps {
 public:
  CpuOps(CpuKernels kernels, int num_threads)
      : HostOps(num_threads), kernels_(kernels), attention_scratch_(num_threads) {}

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(absl::Span<const WeightView> parts) override;
  std::unique_ptr<AttentionPlan> CreateAttentionPlan() override { return std::make_unique<CpuAttentionPlan>(); }

  absl::Status EmbeddingLookup(const EmbeddingLookupParams& params) override;
  absl::Status AddRmsNorm(const AddRmsNormParams& params) override;
  absl::Status Linear(const LinearParams& params) override;
  absl::Status RopeAndStoreKv(const RopeAndStoreKvParams& params) override;
  absl::Status PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) override;
  absl::Status PagedAttention(const PagedAttentionParams& params) override;
  absl::Status SiluMul(const SiluMulParams& params) override;

  absl::Status LinearAdd(const LinearParams& params) override;
  absl::Status NormLinear(const AddRmsNormParams& norm, const LinearParams& linear) override;
  absl::Status NormLinearRope(const AddRmsNormParams& norm, const LinearParams& linear,
                              const RopeAndStoreKvParams& rope) override;
  absl::Status NormLinearSilu(const AddRmsNormParams& norm, const LinearParams& linear,
                              const SiluMulParams& silu) override;

  void BeginStep() override { in_step_ = true; }
  void EndStep() override {
    Finish();
    in_step_ = false;
  }

 protected:
  void Finish() override;

 private:
  // To be called at an op's end.
  absl::Status EndOp() {
    if (!in_step_) Finish();
    return absl::OkStatus();
  }
  // Adds a loop of body(row) over rows of `cols` values. The body is copied.
  template <typename F>
  void AddRows(int64_t rows, int64_t cols, double* seconds, const F& body);
  absl::Status AddLinearOp(const AddRmsNormParams* norm, const LinearParams& params, bool add, const LinearTail& tail);
  void AddAttention(const PagedAttentionParams& params, const CpuAttentionPlan& plan, const AttentionSplit& split);
  absl::Status ReserveAttentionMemory(int32_t head_dim, int64_t partial_floats);

  const CpuKernels kernels_;
  WeightArena weight_arena_;
  Program program_;
  bool in_step_ = false;
  GemmScratch gemm_scratch_;
  std::vector<Buffer> attention_scratch_;  // one a thread
  Buffer partials_;
};

}  // namespace quire
