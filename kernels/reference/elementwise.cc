#include <algorithm>
#include <cmath>

#include "kernels/base/status_macros.h"
#include "kernels/reference/reference_ops.h"

namespace quire::reference {
namespace {

// Half-split rotation of the first `rotary_dim` values of one head.
void Rotate(const float* cos_sin, int64_t rotary_dim, float* head) {
  const int64_t half = rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    const float cos = cos_sin[i], sin = cos_sin[half + i];
    head[i] = a * cos - b * sin;
    head[half + i] = b * cos + a * sin;
  }
}

}  // namespace

absl::Status ReferenceOps::AddRmsNorm(const AddRmsNormParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckAddRmsNorm(params));
  const F32Matrix residual = params.residual.f32(), out = params.out.f32();
  pool_.ParallelFor(residual.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* x = residual.row(t);
      if (params.delta.data != nullptr) {
        const float* delta = params.delta.f32().row(t);
        for (int64_t i = 0; i < residual.cols; ++i) x[i] += delta[i];
      }
      double squares = 0;
      for (int64_t i = 0; i < residual.cols; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double mean = squares / static_cast<double>(residual.cols);
      const float scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(params.epsilon)));
      for (int64_t i = 0; i < residual.cols; ++i) out.row(t)[i] = x[i] * scale * params.weight[i];
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceOps::RopeAndStoreKv(const RopeAndStoreKvParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckRopeAndStoreKv(params));
  const PagedKvView& kv = params.kv;
  QUIRE_RETURN_IF_ERROR(CheckKvType("RopeAndStoreKv", kv, {DType::kF32}));
  const F32Matrix qkv = params.qkv.f32(), cos_sin = params.cos_sin.f32();
  const KvRunLayout layout = LayoutOf(kv);
  const int64_t dim = kv.head_dim, num_heads = params.num_heads;
  pool_.ParallelFor(qkv.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* row = qkv.row(t);
      for (int64_t h = 0; h < num_heads + kv.num_kv_heads; ++h) Rotate(cos_sin.row(t), cos_sin.cols, row + h * dim);
      const int32_t block = params.slot_mapping[t] / kv.block_size, offset = params.slot_mapping[t] % kv.block_size;
      for (int64_t h = 0; h < kv.num_kv_heads; ++h) {
        std::byte* const run = KvRun(kv, layout, block, h);
        std::copy_n(row + (num_heads + h) * dim, dim, reinterpret_cast<float*>(run + layout.k_row(offset)));
        std::copy_n(row + (num_heads + kv.num_kv_heads + h) * dim, dim,
                    reinterpret_cast<float*>(run + layout.v_row(offset)));
      }
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceOps::SiluMul(const SiluMulParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckSiluMul(params));
  const F32Matrix gate_up = params.gate_up.f32(), out = params.out.f32();
  pool_.ParallelFor(out.rows, 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = gate_up.row(t);
      const float* up = gate + out.cols;
      for (int64_t i = 0; i < out.cols; ++i) {
        const double exp = std::exp(-static_cast<double>(gate[i]));
        out.row(t)[i] = static_cast<float>(static_cast<double>(gate[i]) / (1.0 + exp)) * up[i];
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace quire::reference
