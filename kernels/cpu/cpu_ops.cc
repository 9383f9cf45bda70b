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

// Fewer heads a thread than this cannot be shared out evenly.
constexpr int64_t kLeastHeadsPerThread = 4;

absl::Status CheckRope(const RopeAndStoreKvParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckRopeAndStoreKv(params));
  return CheckKvType("RopeAndStoreKv", params.kv, kCpuKvTypes);
}

// RopeAndStoreKv, head by head: of q, then of k, then of v.
struct RopeJob {
  const VectorKernels& vector;
  F32Matrix qkv;
  F32Matrix cos_sin;
  absl::Span<const int32_t> slot_mapping;
  PagedKvView kv;
  KvRunLayout layout;
  int64_t num_q;

  RopeJob(const VectorKernels& vector_in, const RopeAndStoreKvParams& params)
      : vector(vector_in),
        qkv(params.qkv.f32()),
        cos_sin(params.cos_sin.f32()),
        slot_mapping(params.slot_mapping),
        kv(params.kv),
        layout(LayoutOf(params.kv)),
        num_q(params.num_heads) {}

  int64_t num_heads() const { return num_q + 2 * kv.num_kv_heads; }

  void Run(int64_t row, int64_t head) const {
    float* const x = qkv.row(row) + head * kv.head_dim;
    const int64_t of_kv = head - num_q, of_v = of_kv - kv.num_kv_heads;
    if (of_v < 0) vector.rotate(cos_sin.row(row), cos_sin.cols / 2, x);
    if (of_kv < 0) return;
    const int32_t block = slot_mapping[row] / kv.block_size, offset = slot_mapping[row] % kv.block_size;
    std::byte* const run = KvRun(kv, layout, block, of_v < 0 ? of_kv : of_v);
    if (of_v < 0) {
      Store(x, run + layout.k_row(offset), run + layout.k_scale(offset));
    } else {
      Store(x, run + layout.v_row(offset), run + layout.v_scale(offset));
    }
  }

  void Store(const float* x, std::byte* row, std::byte* scale) const {
    const int64_t dim = kv.head_dim;
    switch (kv.dtype) {
      case DType::kF16:
        return vector.store_f16(x, reinterpret_cast<uint16_t*>(row), dim);
      case DType::kBf16:
        return vector.store_bf16(x, reinterpret_cast<uint16_t*>(row), dim);
      case DType::kI8:
        return vector.store_int8(x, reinterpret_cast<int8_t*>(row), reinterpret_cast<float*>(scale), dim);
      default:
        std::copy_n(x, dim, reinterpret_cast<float*>(row));
    }
  }
};

struct SiluJob {
  const VectorKernels& vector;
  F32Matrix gate_up;
  F32Matrix out;

  // Columns [begin, end) of a row.
  void Run(int64_t row, int64_t begin, int64_t end) const {
    const float* const gate = gate_up.row(row) + begin;
    vector.silu_mul(gate, gate + out.cols, out.row(row) + begin, end - begin);
  }
};

// True if heads can be rotated by who computes them: each lies in whole tiles of one part.
bool HoldsHeads(const CpuPackedWeight& weight, int64_t head_dim) {
  if (head_dim % kTileOutputs != 0) return false;
  const auto& parts = weight.parts();
  return std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return part.rows % head_dim == 0; });
}

bool HoldsPairs(const CpuPackedWeight& weight) {
  const auto& parts = weight.parts();
  return parts.size() == 2 && parts[0].rows == parts[1].rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedWeight>> CpuOps::PackWeight(absl::Span<const WeightView> parts) {
  QUIRE_ASSIGN_OR_RETURN(std::unique_ptr<PackedWeight> packed, PackCpuWeight(parts, weight_arena_));
  return packed;
}

void CpuOps::Finish() {
  if (!program_.empty()) program_.Run(pool_);
}

template <typename F>
void CpuOps::AddRows(int64_t rows, int64_t cols, double* seconds, const F& body) {
  ThreadPool::Loop loop;
  loop.run = [](void* context, const ThreadPool::Piece& piece) {
    for (int64_t row = piece.begin; row < piece.end; ++row) (*static_cast<const F*>(context))(row);
  };
  loop.context = program_.New(body);
  loop.n = rows;
  loop.min_grain = loop.max_grain = RowsPerPiece(cols);
  loop.seconds = seconds;
  program_.Add(loop);
}

absl::Status CpuOps::EmbeddingLookup(const EmbeddingLookupParams& params) {
  Finish();
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckEmbeddingLookup(params));
  LookupRows(static_cast<const CpuPackedWeight&>(*params.table), params.ids, params.out.f32());
  return absl::OkStatus();
}

absl::Status CpuOps::AddRmsNorm(const AddRmsNormParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckAddRmsNorm(params));
  const F32Matrix residual = params.residual.f32(), out = params.out.f32();
  const F32Matrix delta = params.delta.data == nullptr ? F32Matrix() : params.delta.f32();
  AddRows(
      residual.rows, residual.cols, &times_.other,
      [&vector = kernels_.vector, residual, delta, weight = params.weight, epsilon = params.epsilon, out](int64_t t) {
        vector.add_rms_norm(residual.row(t), delta.data == nullptr ? nullptr : delta.row(t), weight, epsilon,
                            out.row(t), residual.cols);
      });
  return EndOp();
}

absl::Status CpuOps::SiluMul(const SiluMulParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckSiluMul(params));
  const SiluJob job = {kernels_.vector, params.gate_up.f32(), params.out.f32()};
  AddRows(job.out.rows, job.out.cols, &times_.other, [job](int64_t t) { job.Run(t, 0, job.out.cols); });
  return EndOp();
}

absl::Status CpuOps::RopeAndStoreKv(const RopeAndStoreKvParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckRope(params));
  const RopeJob job(kernels_.vector, params);
  AddRows(job.qkv.rows, job.qkv.cols, &times_.other, [job](int64_t t) {
    for (int64_t head = 0; head < job.num_heads(); ++head) job.Run(t, head);
  });
  return EndOp();
}

absl::Status CpuOps::AddLinearOp(const AddRmsNormParams* norm, const LinearParams& params, bool add,
                                 const LinearTail& tail) {
  LinearLayer layer;
  layer.weight = static_cast<const CpuPackedWeight*>(params.weight);
  layer.x = params.x.f32();
  if (norm != nullptr) {
    layer.x = norm->residual.f32();
    layer.norm_weight = norm->weight;
    layer.epsilon = norm->epsilon;
  }
  layer.bias = params.bias;
  layer.out = params.out.f32();
  layer.add = add;
  layer.tail = tail;
  layer.seconds = &times_.linear;
  return AddLinear(kernels_, pool_.num_threads(), layer, gemm_scratch_, program_);
}

absl::Status CpuOps::Linear(const LinearParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckLinear(params));
  QUIRE_RETURN_IF_ERROR(AddLinearOp(nullptr, params, /*add=*/false, {}));
  return EndOp();
}

absl::Status CpuOps::LinearAdd(const LinearParams& params) {
  QUIRE_RETURN_IF_ERROR(CheckLinear(params));
  QUIRE_RETURN_IF_ERROR(AddLinearOp(nullptr, params, /*add=*/true, {}));
  return EndOp();
}

absl::Status CpuOps::NormLinear(const AddRmsNormParams& norm, const LinearParams& linear) {
  QUIRE_RETURN_IF_ERROR(CheckNormLinear(norm, linear));
  QUIRE_RETURN_IF_ERROR(AddLinearOp(&norm, linear, /*add=*/false, {}));
  return EndOp();
}

absl::Status CpuOps::NormLinearRope(const AddRmsNormParams& norm, const LinearParams& linear,
                                    const RopeAndStoreKvParams& rope) {
  QUIRE_RETURN_IF_ERROR(CheckNormLinear(norm, linear));
  QUIRE_RETURN_IF_ERROR(CheckRope(rope));
  QUIRE_RETURN_IF_ERROR(CheckSameView("NormLinearRope: rope.qkv", rope.qkv, linear.out));
  const RopeJob job(kernels_.vector, rope);
  const bool fuses = HoldsHeads(static_cast<const CpuPackedWeight&>(*linear.weight), rope.kv.head_dim) &&
                     job.num_heads() >= kLeastHeadsPerThread * pool_.num_threads();
  if (!fuses) return Ops::NormLinearRope(norm, linear, rope);
  LinearTail tail;
  tail.context = program_.New(job);
  tail.item_tiles = rope.kv.head_dim / kTileOutputs;
  tail.run = [](const void* context, const LinearTail::Range& range) {
    const auto& heads = *static_cast<const RopeJob*>(context);
    for (int64_t row = range.row_begin; row < range.row_end; ++row) {
      for (int64_t head = range.begin; head < range.end; ++head) heads.Run(row, head);
    }
  };
  QUIRE_RETURN_IF_ERROR(AddLinearOp(&norm, linear, /*add=*/false, tail));
  return EndOp();
}

absl::Status CpuOps::NormLinearSilu(const AddRmsNormParams& norm, const LinearParams& linear,
                                    const SiluMulParams& silu) {
  QUIRE_RETURN_IF_ERROR(CheckNormLinear(norm, linear));
  QUIRE_RETURN_IF_ERROR(CheckSiluMul(silu));
  QUIRE_RETURN_IF_ERROR(CheckSameView("NormLinearSilu: silu.gate_up", silu.gate_up, linear.out));
  if (!HoldsPairs(static_cast<const CpuPackedWeight&>(*linear.weight))) return Ops::NormLinearSilu(norm, linear, silu);
  LinearTail tail;
  tail.context = program_.New(SiluJob{kernels_.vector, silu.gate_up.f32(), silu.out.f32()});
  tail.paired = true;
  tail.run = [](const void* context, const LinearTail::Range& range) {
    const auto& columns = *static_cast<const SiluJob*>(context);
    const int64_t end = std::min(range.end * kTileOutputs, columns.out.cols);
    for (int64_t row = range.row_begin; row < range.row_end; ++row) columns.Run(row, range.begin * kTileOutputs, end);
  };
  QUIRE_RETURN_IF_ERROR(AddLinearOp(&norm, linear, /*add=*/false, tail));
  return EndOp();
}

}  // namespace quire
