#include <algorithm>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/huge_memory.h"
#include "kernels/dequantize.h"
#include "kernels/reference/reference_ops.h"

namespace quire::reference {
namespace {

constexpr int64_t kTile = PackedF32Weight::kTile;
constexpr int64_t kTilesPerPiece = 2;  // of parallel work

// Four f32: GNU vector syntax, for SSE2 of the baseline.
typedef float Float4 __attribute__((vector_size(16)));

Float4 Load4(const float* values) {
  Float4 result;
  __builtin_memcpy(&result, values, sizeof(result));
  return result;
}

// kRows rows of x times one tile: sums[r][o] = sum over k, ascending, of x[r][k] * tile[k][o].
template <int kRows>
void MultiplyTile(const float* tile, int64_t cols, const float* x, int64_t stride, float sums[kRows][kTile]) {
  Float4 acc[kRows][4] = {};
  for (int64_t k = 0; k < cols; ++k) {
    const float* w = tile + k * kTile;
    const Float4 w0 = Load4(w), w1 = Load4(w + 4), w2 = Load4(w + 8), w3 = Load4(w + 12);
    for (int r = 0; r < kRows; ++r) {
      const float value = x[r * stride + k];
      const Float4 v = {value, value, value, value};
      acc[r][0] += v * w0;
      acc[r][1] += v * w1;
      acc[r][2] += v * w2;
      acc[r][3] += v * w3;
    }
  }
  __builtin_memcpy(sums, acc, sizeof(acc));
}

template <int kRows>
void LinearTile(const LinearParams& params, const PackedF32Weight& weight, bool add, int64_t tile, int64_t row) {
  const F32Matrix x = params.x.f32(), out = params.out.f32();
  float sums[kRows][kTile];
  MultiplyTile<kRows>(weight.tile(tile), weight.cols(), x.row(row), x.stride, sums);
  const int64_t first = tile * kTile, count = std::min(kTile, weight.rows() - first);
  for (int r = 0; r < kRows; ++r) {
    for (int64_t o = 0; o < count; ++o) {
      float& to = out.row(row + r)[first + o];
      const float sum = params.bias == nullptr ? sums[r][o] : sums[r][o] + params.bias[first + o];
      to = add ? to + sum : sum;
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedWeight>> ReferenceOps::PackWeight(absl::Span<const WeightView> parts) {
  QUIRE_RETURN_IF_ERROR(CheckPackWeight(parts));
  const int64_t cols = parts[0].cols;
  int64_t rows = 0;
  for (const WeightView& part : parts) rows += part.rows;
  const int64_t bytes = (rows + kTile - 1) / kTile * kTile * cols * static_cast<int64_t>(sizeof(float));
  QUIRE_ASSIGN_OR_RETURN(Buffer memory, AllocateHugeMemory(bytes));
  auto packed = std::make_unique<PackedF32Weight>(std::move(memory), rows, cols);

  int64_t first = 0;
  for (const WeightView& part : parts) {
    pool_.ParallelFor(part.rows, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> values(cols);
      for (int64_t r = begin; r < end; ++r) {
        const int64_t stored = part.row_order.empty() ? r : part.row_order[r];
        DequantizeRow(part.format, part.data + stored * part.row_bytes, values.data(), cols);
        float* out = packed->tile((first + r) / kTile) + (first + r) % kTile;
        for (int64_t k = 0; k < cols; ++k) out[k * kTile] = values[k];
      }
    });
    first += part.rows;
  }
  return packed;
}

absl::Status ReferenceOps::EmbeddingLookup(const EmbeddingLookupParams& params) {
  OpTimer timer(&times_.other);
  QUIRE_RETURN_IF_ERROR(CheckEmbeddingLookup(params));
  const auto& table = static_cast<const PackedF32Weight&>(*params.table);
  const F32Matrix out = params.out.f32();
  for (int64_t t = 0; t < out.rows; ++t) {
    const float* column = table.tile(params.ids[t] / kTile) + params.ids[t] % kTile;
    for (int64_t k = 0; k < out.cols; ++k) out.row(t)[k] = column[k * kTile];
  }
  return absl::OkStatus();
}

absl::Status ReferenceOps::RunLinear(const LinearParams& params, bool add) {
  OpTimer timer(&times_.linear);
  QUIRE_RETURN_IF_ERROR(CheckLinear(params));
  const auto& weight = static_cast<const PackedF32Weight&>(*params.weight);
  const int64_t rows = params.x.rows;
  pool_.ParallelFor(weight.num_tiles(), kTilesPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      int64_t row = 0;
      for (; row + 2 <= rows; row += 2) LinearTile<2>(params, weight, add, tile, row);
      if (row < rows) LinearTile<1>(params, weight, add, tile, row);
    }
  });
  return absl::OkStatus();
}

}  // namespace quire::reference
