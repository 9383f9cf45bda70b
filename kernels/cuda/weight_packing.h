#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/device_weight.h"
#include "kernels/ops.h"

namespace quire::cuda {

// Rows of one storage, packed in host memory: `bytes` is to be copied to a device address that is a multiple of 256.
struct HostWeight {
  WeightStorage storage = WeightStorage::kF16;
  int32_t first_row = 0;  // of the whole weight
  int32_t rows = 0, blocks = 0;
  bool has_minimums = false;
  int64_t scales_offset = 0, minimums_offset = 0, row_scales_offset = 0;  // in bytes; values are at 0
  std::vector<unsigned char> bytes;

  // The weight whose bytes lie at `data`.
  DeviceWeight At(const unsigned char* data) const;
};

// Packs parts one below the other; neighbours of one storage go together. f32, f16 and bf16 become f16, 4-bit formats
// kInt4, formats of 5, 6 and 8 bits kInt8; scales and minimums become f16, each row multiplied by a power of two.
// REQUIRES: CheckPackWeight(parts) is OK (op_checks.h), and less than 2^31 rows in all.
std::vector<HostWeight> PackParts(absl::Span<const WeightView> parts);

}  // namespace quire::cuda
