#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/weight_arena.h"
#include "kernels/ops.h"

namespace quire {

// Weights of a linear layer (or an embedding table) in the one layout of the CPU backend: gemm_kernels.h. Lies in the
// arena it was packed into and must not outlive it. Immutable, so any thread may read it.
class CpuPackedWeight : public PackedWeight {
 public:
  struct Part {
    WeightTiles tiles;
    int64_t first_row = 0;
    int64_t rows = 0;
    int64_t num_tiles() const { return (rows + kTileOutputs - 1) / kTileOutputs; }
  };

  CpuPackedWeight(std::vector<Part> parts, int64_t rows, int64_t cols, int64_t bytes)
      : parts_(std::move(parts)), rows_(rows), cols_(cols), bytes_(bytes) {}

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  int64_t bytes() const override { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  std::vector<Part> parts_;
  int64_t rows_;
  int64_t cols_;
  int64_t bytes_;
};

// Packs `parts` one below the other into memory of `arena`. kInvalidArgument naming part and field: no parts, cols that
// differ or that the format's block does not divide, a row order that is not of rows() entries within range.
// kResourceExhausted.
absl::StatusOr<std::unique_ptr<CpuPackedWeight>> PackCpuWeight(absl::Span<const WeightView> parts, WeightArena& arena);

// out[t, :] = row ids[t], exactly as DequantizeRow decodes it. REQUIRES: ids in [0, rows()), out [ids.size(), cols()].
void LookupRows(const CpuPackedWeight& weight, absl::Span<const int32_t> ids, F32Matrix out);

}  // namespace quire
