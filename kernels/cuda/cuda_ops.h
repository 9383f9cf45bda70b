#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/device_weight.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/host_ops.h"

namespace quire {

// Weights on the device: runs of rows of one storage.
class CudaPackedWeight : public PackedWeight {
 public:
  struct Part {
    int32_t first_row = 0;
    Buffer memory;
    cuda::DeviceWeight weight;
  };
  CudaPackedWeight(std::vector<Part> parts, int64_t rows, int64_t cols, int64_t bytes)
      : parts_(std::move(parts)), rows_(rows), cols_(cols), bytes_(bytes) {}

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  int64_t bytes() const override { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }
  int32_t blocks() const { return parts_.front().weight.blocks; }  // of 32 inputs

 private:
  std::vector<Part> parts_;
  int64_t rows_, cols_, bytes_;
};

// The ops on one stream. Within a step they are put into the stream and nobody waits, but for SampleTokens, which
// copies the logits to the host and samples there (kernels/sampling.h); outside of a step each op waits. A failure on
// the device is reported by the op that waits, or by the next one, and by all after it.
class CudaOps : public HostOps {
 public:
  // `deterministic`: attention by one kernel, whatever is in the batch. `stream` outlives the ops.
  CudaOps(const cuda::DeviceInfo& device, cuda::Stream stream, bool deterministic, int num_threads)
      : HostOps(num_threads), device_(device), stream_(stream), deterministic_(deterministic), staging_(stream) {}

  absl::StatusOr<std::unique_ptr<PackedWeight>> PackWeight(absl::Span<const WeightView> parts) override;
  std::unique_ptr<AttentionPlan> CreateAttentionPlan() override { return std::make_unique<cuda::CudaAttentionPlan>(); }

  absl::Status EmbeddingLookup(const EmbeddingLookupParams& params) override;
  absl::Status AddRmsNorm(const AddRmsNormParams& params) override;
  absl::Status Linear(const LinearParams& params) override { return RunLinear(params, /*add=*/false); }
  absl::Status LinearAdd(const LinearParams& params) override { return RunLinear(params, /*add=*/true); }
  absl::Status RopeTable(const RopeTableParams& params) override;
  absl::Status RopeAndStoreKv(const RopeAndStoreKvParams& params) override;
  absl::Status PlanAttention(const AttentionBatch& batch, AttentionPlan& plan) override;
  absl::Status PagedAttention(const PagedAttentionParams& params) override;
  absl::Status SiluMul(const SiluMulParams& params) override;
  absl::Status GatherRows(const GatherRowsParams& params) override;
  absl::Status CopyBlocks(const CopyBlocksParams& params) override;
  absl::Status SampleTokens(const SampleTokensParams& params) override;

  void BeginStep() override { in_step_ = true; }
  void EndStep() override;

  // What the device has failed with.
  const absl::Status& broken() const { return broken_; }

 private:
  // What an op answers after its launches: `error` if one failed, and outside of a step what the device says.
  absl::Status EndOp(int error, const char* op);
  // Waits for the stream.
  absl::Status Settle();
  // Makes *buffer at least that large. Waits if it has to grow.
  absl::Status Reserve(int64_t bytes, Buffer* buffer);
  absl::Status RunLinear(const LinearParams& params, bool add);
  absl::Status GrowRopeTable(const RopeTableParams& params, int64_t positions);

  const cuda::DeviceInfo device_;
  const cuda::Stream stream_;
  const bool deterministic_;
  bool in_step_ = false;
  absl::Status broken_;
  cuda::Staging staging_;
  Buffer prepared_, prepared_scales_;   // inputs of a linear layer
  Buffer partial_out_, partial_state_;  // of decoding
  // [positions, D_rot] f32 for the frequencies below: what RopeTable gathers from.
  Buffer rope_table_;
  int64_t rope_positions_ = 0;
  std::vector<float> rope_inv_freq_;
  float rope_factor_ = 0;
  Buffer host_logits_;  // pinned
};

}  // namespace quire
