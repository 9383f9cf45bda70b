#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/tensor_view.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/ops.h"

namespace quire {

// Weights of a linear layer (or an embedding table) in the one layout of the CPU backend: gemm_kernels.h. Lies in huge
// pages. Immutable, so any thread may read it.
class CpuPackedWeight : public PackedWeight {
 public:
  struct Part {
    WeightTiles tiles;
    int64_t first_row = 0;
    int64_t rows = 0;
    int64_t num_tiles() const { return (rows + kTileOutputs - 1) / kTileOutputs; }
  };

  CpuPackedWeight(Buffer memory, std::vector<Part> parts, int64_t rows, int64_t cols, int64_t bytes)
      : memory_(std::move(memory)), parts_(std::move(parts)), rows_(rows), cols_(cols), bytes_(bytes) {}

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  int64_t bytes() const override { return bytes_; }
  const std::vector<Part>& parts() const { return parts_; }

 private:
  Buffer memory_;
  std::vector<Part> parts_;
  int64_t rows_;
  int64_t cols_;
  int64_t bytes_;
};

// Packs `parts` one below the other. kInvalidArgument naming part and field: no parts, cols that differ or that the
// format's block does not divide, a row order that is not of rows() entries within range. kResourceExhausted.
absl::StatusOr<std::unique_ptr<CpuPackedWeight>> PackCpuWeight(absl::Span<const WeightView> parts);

// out[t, :] = row ids[t], exactly as DequantizeRow decodes it. REQUIRES: ids in [0, rows()), out [ids.size(), cols()].
void LookupRows(const CpuPackedWeight& weight, absl::Span<const int32_t> ids, F32Matrix out);

}  // namespace quire
