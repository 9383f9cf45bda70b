#include "kernels/cpu/cpu_ops.h"

#include <algorithm>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/packed_weight.h"

namespace quire {
namespace {

// Rows of `cols` values that are worth handing to another thread.
int64_t RowsPerPiece(int64_t cols) {
  constexpr int64_t kValuesPerPiece = 8192;
  return std::max<int64_t>(1, kValuesPerPiece / std::max<int64_t>(1, cols));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedWeight>> CpuOps::PackWeight(absl::Span<const WeightView> parts) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> packed, PackCpuWeight(parts, weight_arena_));
  return packed;
}

absl::Status CpuOps::EmbeddingLookup(const EmbeddingLookupParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckEmbeddingLookup(params));
  LookupRows(static_cast<const CpuPackedWeight&>(*params.table), params.ids, params.out.f32());
  return absl::OkStatus();
}

absl::Status CpuOps::Linear(const LinearParams& params) {
  OpTimer timer(&times_.linear);
  QUIRE_RETURN_IF_ERROR(CheckLinear(params));
  const auto& weight = static_cast<const CpuPackedWeight&>(*params.weight);
  LearnNext(weight);
  return CpuLinear(gemm_, pool_, weight, next_[&weight].shares, params.x.f32(), params.bias, params.out.f32(),
                   gemm_scratch_);
}

void CpuOps::LearnNext(const CpuPackedWeight& weight) {
  NextWeight& next = next_[last_weight_];
  last_weight_ = &weight;
  if (next.weight == &weight) return;
  next.weight = &weight;
  FillShareStarts(weight, pool_, &next.shares);
}

absl::Status CpuOps::AddRmsNorm(const AddRmsNormParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckAddRmsNorm(params));
  const F32Matrix residual = params.residual.f32(), out = params.out.f32();
  const F32Matrix delta = params.delta.data == nullptr ? F32Matrix() : params.delta.f32();
  pool_.ParallelFor(residual.rows, RowsPerPiece(residual.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      vector_.add_rms_norm(residual.row(t), delta.data == nullptr ? nullptr : delta.row(t), params.weight,
                           params.epsilon, out.row(t), residual.cols);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::SiluMul(const SiluMulParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckSiluMul(params));
  const F32Matrix gate_up = params.gate_up.f32(), out = params.out.f32();
  pool_.ParallelFor(out.rows, RowsPerPiece(out.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      vector_.silu_mul(gate_up.row(t), gate_up.row(t) + out.cols, out.row(t), out.cols);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuOps::RopeAndStoreKv(const RopeAndStoreKvParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckRopeAndStoreKv(params));
  const F32Matrix qkv = params.qkv.f32(), cos_sin = params.cos_sin.f32();
  const PagedKvView& kv = params.kv;
  const int64_t dim = kv.head_dim, num_q = params.num_heads, num_kv = kv.num_kv_heads;
  const auto store = [&](const float* x, int64_t block, int64_t head, int64_t offset) {
    if (kv.dtype == DType::kF16) {
      vector_.store_f16(x, KvRun<uint16_t>(kv, block, head) + offset * dim, dim);
    } else {
      std::copy_n(x, dim, KvRun<float>(kv, block, head) + offset * dim);
    }
  };
  pool_.ParallelFor(qkv.rows, RowsPerPiece(qkv.cols), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = qkv.row(t);
      for (int64_t h = 0; h < num_q + num_kv; ++h) vector_.rotate(cos_sin.row(t), cos_sin.cols / 2, row + h * dim);
      const int64_t block = params.slot_mapping[t] / kv.block_size, offset = params.slot_mapping[t] % kv.block_size;
      for (int64_t h = 0; h < num_kv; ++h) {
        store(row + (num_q + h) * dim, block, h, offset);
        store(row + (num_q + num_kv + h) * dim, block, h, kv.block_size + offset);  // V follows the block's K
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace quire
