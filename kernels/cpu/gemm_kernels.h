#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"

// What passes between the portable part of the CPU linear layers and their instruction-set units: plain data and
// pointers to functions, nothing that the linker could merge between units with different flags. The layouts are used
// by every instruction set alike; kernels/README.md, "Linear layers", defines the arithmetic.
namespace quire {

inline constexpr int32_t kTileOutputs = 16;  // outputs of a weight tile
inline constexpr int32_t kBlock = 32;        // inputs that share an activation scale
inline constexpr int32_t kFloatLanes = 16;   // partial sums of a dot product with float weights

// Blocks of activations whose largest magnitude is below 2^-120 count as zero: then 127 / magnitude is finite for all
// others. Compared as the bits of an f32, where NaN is above infinity.
inline constexpr uint32_t kLeastAbsMaxBits = 0x03800000;
inline constexpr uint32_t kInfinityBits = 0x7f800000;

// How a block format is held: the integer u = value + offset, 0 <= u <= max, in a byte or a nibble.
struct IntFormat {
  bool nibbles = false;      // two values a byte
  bool has_minimum = false;  // value * scale + minimum
  bool f32_scales = false;   // scales and minimums are f32, else f16
  int32_t groups = 1;        // scales a block of 32: 1, or 2 (groups of 16)
  int32_t offset_log2 = -1;  // offset = 2^offset_log2; -1: no offset
  int32_t max = 0;

  constexpr int32_t offset() const { return offset_log2 < 0 ? 0 : 1 << offset_log2; }
  constexpr int32_t value_bytes() const { return kTileOutputs * kBlock / (nibbles ? 2 : 1); }     // of a block
  constexpr int32_t scale_bytes() const { return kTileOutputs * groups * (f32_scales ? 4 : 2); }  // of a block
  constexpr int32_t minimum_bytes() const { return has_minimum ? kTileOutputs * (f32_scales ? 4 : 2) : 0; }
};

// max == 0: not a block format.
constexpr IntFormat IntFormatOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return {.offset_log2 = 7, .max = 255};
    case WeightFormat::kQ4_0:
      return {.nibbles = true, .offset_log2 = 3, .max = 15};
    case WeightFormat::kQ4_1:
      return {.nibbles = true, .has_minimum = true, .max = 15};
    case WeightFormat::kQ5_0:
      return {.offset_log2 = 4, .max = 31};
    case WeightFormat::kQ5_1:
      return {.has_minimum = true, .max = 31};
    case WeightFormat::kQ4_K:
      return {.nibbles = true, .has_minimum = true, .f32_scales = true, .max = 15};
    case WeightFormat::kQ5_K:
      return {.has_minimum = true, .f32_scales = true, .max = 31};
    case WeightFormat::kQ6_K:
      return {.f32_scales = true, .groups = 2, .offset_log2 = 5, .max = 63};
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      break;
  }
  return {};
}

// Kernels may read so far behind the last tile of a part, and do nothing with what they find.
inline constexpr int64_t kReadAheadBytes = 8 << 10;

// One part of a packed weight: tiles of 16 outputs, `tile_bytes` (a multiple of 64) apart, 64-byte aligned. Outputs
// past the part's rows have scale (or weights) zero.
//
// A tile of a block format is three arrays, each one entry a block of 32 inputs and padded to 64 bytes:
//   scales    [group][16 outputs] f16 or f32
//   minimums  [16 outputs] f16 or f32, if the format has them
//   values    bytes:   [quad q of 8][output][4]    inputs 4q .. 4q + 3
//             nibbles: [v of 4][output][4]         inputs 8v .. 8v + 3 low, 8v + 4 .. 8v + 7 high
// A tile of f32, f16 or bf16 is 16 rows of `padded_cols` weights (cols rounded up to 16, zeros).
struct WeightTiles {
  WeightFormat format = WeightFormat::kF32;
  const std::byte* data = nullptr;
  int64_t tile_bytes = 0;
  int64_t minimums_offset = 0;  // in a tile
  int64_t values_offset = 0;
  int64_t blocks = 0;       // block formats: cols / 32
  int64_t padded_cols = 0;  // float formats
};

// Where the results of one panel of rows go.
struct OutputBlock {
  float* data = nullptr;  // [rows, outputs] of the panel's rows and the part's first output
  int64_t stride = 0;
  int32_t rows = 0;             // of the panel
  int64_t outputs = 0;          // of the part; the last tile writes only these
  const float* bias = nullptr;  // [outputs] or null
  bool add = false;             // to what is there already, after the bias
};

// Bytes of a record for each row.
inline constexpr int64_t kRecordRowBytes = 16 + kBlock;

// The kernels of one instruction set.
//
// Rows of activations in int8, made by `quantize` for `integer_gemm`. A panel of R rows is one record a block, one
// behind the other and nothing between, since another core has to fetch them:
//   f32 scale[R], f32 scaled_sum[R] (scale * float(sum of the block)), i32 sum[2][R] (inputs 0..15, 16..31), i8
//   q[R][32]
// `integer_gemm` may read up to 64 bytes behind a panel.
struct GemmKernels {
  const char* name = nullptr;
  int32_t max_panel_rows = 0;  // of quantize and integer_gemm
  int32_t max_float_rows = 0;  // of float_gemm

  // x: [rows, 32 * blocks], `stride` apart.
  void (*quantize)(const float* x, int64_t stride, int32_t rows, int64_t blocks, std::byte* panel) = nullptr;
  // Outputs of tiles [tile_begin, tile_end) for one panel.
  void (*integer_gemm)(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const std::byte* panel,
                       const OutputBlock& out) = nullptr;
  // The same with float weights. x: [out.rows, weight.padded_cols].
  void (*float_gemm)(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t stride,
                     const OutputBlock& out) = nullptr;
};

// The scalar twin: the same bits, portable code.
const GemmKernels& GemmKernelsScalar();
// Need AVX2, FMA, F16C.
const GemmKernels& GemmKernelsAvx2();
// Needs AVX512F, BW, VL, DQ and VNNI beside those.
const GemmKernels& GemmKernelsAvx512();

}  // namespace quire
