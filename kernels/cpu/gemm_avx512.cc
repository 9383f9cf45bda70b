#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"

// Linear layers with AVX-512 VNNI: kernels/README.md, "Linear layers". Everything here has internal linkage.
namespace quire {
namespace {

constexpr int kMaxPanelRows = 12;  // 12 float and 12 integer accumulators, weights and scales: 28 of 32 registers
constexpr int kMaxFloatRows = 4;
constexpr int kFloatOutputs = 4;  // of the float kernel at once

// A core that multiplies does not look far enough ahead to keep memory busy. So a line beside each line that is used is
// asked for ahead, in the order of addresses. For few rows by a load: loads start the hardware's prefetchers, as plain
// reads do, while prefetch instructions do not and are no faster than the buffers of the first-level cache allow. Many
// rows are slower than memory and would rather keep the first-level cache.
template <int kRows>
constexpr bool kLoadsAhead = kRows < 4;
template <int kRows>
constexpr int kFetchBytes = kLoadsAhead<kRows> ? 4 << 10 : 12 << 10;
static_assert(kFetchBytes<1> + 1024 <= kReadAheadBytes);

using AliasedInt [[gnu::may_alias]] = int32_t;

// One record of a panel.
template <int kRows>
struct Record {
  float scale[kRows];
  float scaled_sum[kRows];
  int32_t sum[2][kRows];
  std::byte q[kRows][kBlock];
};

inline __m512 Broadcast(const float* value) { return _mm512_set1_ps(*value); }

// sum[o] += w[4o .. 4o+3] (unsigned) * the four int8 at `quad`. As assembly because g++ 12 copies registers around the
// intrinsic and does not fold the broadcast.
inline void Dot(__m512i& sum, __m512i w, const std::byte* quad) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const AliasedInt*>(quad)));
}

// Scale (or minimum) number `index` of all 16 outputs.
template <bool kF32>
inline __m512 LoadScales(const std::byte* array, int64_t index) {
  if constexpr (kF32) return _mm512_load_ps(reinterpret_cast<const float*>(array) + index * kTileOutputs);
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(array + index * kTileOutputs * 2)));
}

// A load whose value nobody waits for, as assembly, or the compiler would drop it; or a prefetch.
template <int kRows>
inline void ReadAhead(const std::byte* line) {
  if constexpr (kLoadsAhead<kRows>) {
    __m128i unused;
    asm volatile("vmovd %1, %0" : "=v"(unused) : "m"(*reinterpret_cast<const AliasedInt*>(line)));
  } else {
    _mm_prefetch(line, _MM_HINT_T1);
  }
}

// The lines of a block that DotQuads does not touch.
template <WeightFormat kFormat, int kRows>
inline void FetchScales(const std::byte* fetch) {
  constexpr IntFormat kInt = IntFormatOf(kFormat);
  for (int i = 0; i < kInt.scale_bytes() + kInt.minimum_bytes(); i += 64) {
    ReadAhead<kRows>(fetch + kInt.value_bytes() + i);
  }
}

// sums[r] over quads [kBegin, kEnd) of a block, beginning at -offset * (sum of the activations).
template <WeightFormat kFormat, int kRows, int kBegin, int kEnd>
inline void DotQuads(const std::byte* values, const std::byte* fetch, const std::byte* q, __m512i row_sums,
                     __m512i (&sums)[kRows]) {
  constexpr IntFormat kInt = IntFormatOf(kFormat);
  if constexpr (kInt.offset_log2 >= 0) {
    alignas(64) int32_t start[16];
    _mm512_store_si512(start, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(row_sums, kInt.offset_log2)));
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_set1_epi32(start[r]);
  } else {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_si512();
  }
  if constexpr (kInt.nibbles) {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int v = kBegin / 2; v < kEnd / 2; ++v) {
      ReadAhead<kRows>(fetch + 64 * v);
      const __m512i both = _mm512_load_si512(values + 64 * v);
      const __m512i even = _mm512_and_si512(both, low);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) Dot(sums[r], even, q + kBlock * r + 8 * v);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) Dot(sums[r], odd, q + kBlock * r + 8 * v + 4);
    }
  } else {
#pragma GCC unroll 8
    for (int quad = kBegin; quad < kEnd; ++quad) {
      ReadAhead<kRows>(fetch + 64 * quad);
      const __m512i w = _mm512_load_si512(values + 64 * quad);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) Dot(sums[r], w, q + kBlock * r + 4 * quad);
    }
  }
}

// 16 outputs of kRows rows; the accumulators stay in registers over all of K.
template <WeightFormat kFormat, int kRows>
void IntTile(const WeightTiles& weight, int64_t tile_index, const std::byte* panel, const OutputBlock& out) {
  constexpr IntFormat kInt = IntFormatOf(kFormat);
  constexpr int kValueBytes = kInt.value_bytes();
  constexpr int kBlockBytes = kValueBytes + kInt.scale_bytes() + kInt.minimum_bytes();
  const std::byte* tile = weight.data + tile_index * weight.tile_bytes;
  const std::byte* minimums = tile + weight.minimums_offset;
  const std::byte* values = tile + weight.values_offset;
  __m512 acc[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();

  if (out.add) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(out.data + r * out.stride + tile_index * kTileOutputs, 1);
  }
  const auto* record_at = reinterpret_cast<const Record<kRows>*>(panel);
  const std::byte* fetch = tile + kFetchBytes<kRows>;
  for (int64_t b = 0; b < weight.blocks; ++b, values += kValueBytes, fetch += kBlockBytes, ++record_at) {
    const Record<kRows>& record = *record_at;
    const std::byte* q = record.q[0];
    __m512i sums[kRows];
    // Also reads what follows the sums of kRows rows, and does not use it.
    const __m512i low_sums = _mm512_loadu_si512(record.sum[0]), high_sums = _mm512_loadu_si512(record.sum[1]);
    if constexpr (kInt.groups == 2) {
      DotQuads<kFormat, kRows, 0, 4>(values, fetch, q, low_sums, sums);
      const __m512 scale0 = LoadScales<kInt.f32_scales>(tile, 2 * b);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        acc[r] =
            _mm512_fmadd_ps(_mm512_mul_ps(scale0, Broadcast(&record.scale[r])), _mm512_cvtepi32_ps(sums[r]), acc[r]);
      }
      DotQuads<kFormat, kRows, 4, 8>(values, fetch, q, high_sums, sums);
    } else {
      DotQuads<kFormat, kRows, 0, 8>(values, fetch, q, _mm512_add_epi32(low_sums, high_sums), sums);
    }
    const __m512 scale = LoadScales<kInt.f32_scales>(tile, kInt.groups * b + kInt.groups - 1);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      acc[r] = _mm512_fmadd_ps(_mm512_mul_ps(scale, Broadcast(&record.scale[r])), _mm512_cvtepi32_ps(sums[r]), acc[r]);
    }
    FetchScales<kFormat, kRows>(fetch);
    if constexpr (kInt.has_minimum) {
      const __m512 minimum = LoadScales<kInt.f32_scales>(minimums, b);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) acc[r] = _mm512_fmadd_ps(minimum, Broadcast(&record.scaled_sum[r]), acc[r]);
    }
  }

  const int64_t first = tile_index * kTileOutputs;
  const int64_t count = out.outputs - first < kTileOutputs ? out.outputs - first : kTileOutputs;
  const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
  const bool has_bias = out.bias != nullptr;
  const __m512 bias = has_bias ? _mm512_maskz_loadu_ps(mask, out.bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* const to = out.data + r * out.stride + first;
    __m512 sum = has_bias ? _mm512_add_ps(acc[r], bias) : acc[r];
    if (out.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
    _mm512_mask_storeu_ps(to, mask, sum);
  }
}

using IntTileFn = void (*)(const WeightTiles&, int64_t, const std::byte*, const OutputBlock&);

template <WeightFormat kFormat>
IntTileFn IntTileOf(int32_t rows) {
  static constexpr IntTileFn kByRows[kMaxPanelRows] = {
      IntTile<kFormat, 1>, IntTile<kFormat, 2>,  IntTile<kFormat, 3>,  IntTile<kFormat, 4>,
      IntTile<kFormat, 5>, IntTile<kFormat, 6>,  IntTile<kFormat, 7>,  IntTile<kFormat, 8>,
      IntTile<kFormat, 9>, IntTile<kFormat, 10>, IntTile<kFormat, 11>, IntTile<kFormat, 12>};
  return kByRows[rows - 1];
}

IntTileFn IntTileOf(WeightFormat format, int32_t rows) {
  switch (format) {
    case WeightFormat::kQ8_0:
      return IntTileOf<WeightFormat::kQ8_0>(rows);
    case WeightFormat::kQ4_0:
      return IntTileOf<WeightFormat::kQ4_0>(rows);
    case WeightFormat::kQ4_1:
      return IntTileOf<WeightFormat::kQ4_1>(rows);
    case WeightFormat::kQ5_0:
      return IntTileOf<WeightFormat::kQ5_0>(rows);
    case WeightFormat::kQ5_1:
      return IntTileOf<WeightFormat::kQ5_1>(rows);
    case WeightFormat::kQ4_K:
      return IntTileOf<WeightFormat::kQ4_K>(rows);
    case WeightFormat::kQ5_K:
      return IntTileOf<WeightFormat::kQ5_K>(rows);
    case WeightFormat::kQ6_K:
      return IntTileOf<WeightFormat::kQ6_K>(rows);
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      break;
  }
  return nullptr;
}

void IntegerGemm(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const std::byte* panel,
                 const OutputBlock& out) {
  const IntTileFn tile_fn = IntTileOf(weight.format, out.rows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) tile_fn(weight, tile, panel, out);
}

// Quantises 32 inputs of one row.
inline void QuantizeBlock(const float* x, int32_t rows, int32_t r, std::byte* record) {
  float* const floats = reinterpret_cast<float*>(record);

  const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
  // Compared as integers, magnitudes are ordered zero .. infinity, NaN.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                                                 _mm512_and_si512(_mm512_castps_si512(x1), magnitude)));
  const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
  const float scale = bits < kLeastAbsMaxBits ? 0.0f : absmax / 127.0f;
  __m256i packed = _mm256_setzero_si256();
  if (bits >= kLeastAbsMaxBits && bits < kInfinityBits) {
    const __m512 inverse = _mm512_set1_ps(127.0f / absmax);
    packed = _mm256_set_m128i(_mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse))),
                              _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse))));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(record + rows * 16 + r * kBlock), packed);
  __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), packed);
  sums = _mm256_hadd_epi32(sums, sums);
  sums = _mm256_hadd_epi32(sums, sums);
  const int32_t low = _mm256_cvtsi256_si32(sums), high = _mm256_extract_epi32(sums, 4);
  floats[r] = scale;
  floats[rows + r] = scale * static_cast<float>(low + high);
  int32_t* const sums_of_rows = reinterpret_cast<int32_t*>(record) + 2 * rows;
  sums_of_rows[r] = low;
  sums_of_rows[rows + r] = high;
}

void Quantize(const float* x, int64_t stride, int32_t rows, int64_t blocks, std::byte* panel) {
  for (int32_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < blocks; ++b)
      QuantizeBlock(x + r * stride + b * kBlock, rows, r, panel + b * rows * kRecordRowBytes);
  }
}

// 16 weights of a row of a float format.
template <WeightFormat kFormat>
inline __m512 LoadWeights(const std::byte* row, int64_t k) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(row) + k);
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * k));
    if constexpr (kFormat == WeightFormat::kF16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

// The reduction tree of the 16 lanes: + 8, + 4, + 2, + 1.
inline float Reduce(__m512 lanes) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// kFloatOutputs outputs from `first` on (of a tile; `first` in the part) of kRows rows.
template <WeightFormat kFormat, int kRows>
void FloatOutputs(const WeightTiles& weight, const std::byte* weights, int64_t first, const float* x, int64_t stride,
                  const OutputBlock& out) {
  const int64_t row_bytes = weight.tile_bytes / kTileOutputs;
  __m512 acc[kRows][kFloatOutputs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kFloatOutputs; ++o) acc[r][o] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < weight.padded_cols; k += kFloatLanes) {
    __m512 w[kFloatOutputs];
#pragma GCC unroll 4
    for (int o = 0; o < kFloatOutputs; ++o) w[o] = LoadWeights<kFormat>(weights + o * row_bytes, k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m512 inputs = _mm512_loadu_ps(x + r * stride + k);
#pragma GCC unroll 4
      for (int o = 0; o < kFloatOutputs; ++o) acc[r][o] = _mm512_fmadd_ps(w[o], inputs, acc[r][o]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kFloatOutputs; ++o) {
      if (first + o >= out.outputs) break;
      float* const to = out.data + r * out.stride + first + o;
      float sum = Reduce(acc[r][o]);
      if (out.bias != nullptr) sum += out.bias[first + o];
      *to = out.add ? *to + sum : sum;
    }
  }
}

template <WeightFormat kFormat>
void FloatTiles(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t stride,
                const OutputBlock& out) {
  using Fn = void (*)(const WeightTiles&, const std::byte*, int64_t, const float*, int64_t, const OutputBlock&);
  static constexpr Fn kByRows[kMaxFloatRows] = {FloatOutputs<kFormat, 1>, FloatOutputs<kFormat, 2>,
                                                FloatOutputs<kFormat, 3>, FloatOutputs<kFormat, 4>};
  const Fn fn = kByRows[out.rows - 1];
  const int64_t step_bytes = weight.tile_bytes / kTileOutputs * kFloatOutputs;
  const std::byte* weights = weight.data + tile_begin * weight.tile_bytes;
  for (int64_t first = tile_begin * kTileOutputs; first < tile_end * kTileOutputs && first < out.outputs;
       first += kFloatOutputs, weights += step_bytes) {
    fn(weight, weights, first, x, stride, out);
  }
}

void FloatGemm(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t stride,
               const OutputBlock& out) {
  switch (weight.format) {
    case WeightFormat::kF32:
      return FloatTiles<WeightFormat::kF32>(weight, tile_begin, tile_end, x, stride, out);
    case WeightFormat::kF16:
      return FloatTiles<WeightFormat::kF16>(weight, tile_begin, tile_end, x, stride, out);
    default:
      return FloatTiles<WeightFormat::kBf16>(weight, tile_begin, tile_end, x, stride, out);
  }
}

}  // namespace

const GemmKernels& GemmKernelsAvx512() {
  static constexpr GemmKernels kKernels = {"avx512", kMaxPanelRows, kMaxFloatRows, Quantize, IntegerGemm, FloatGemm};
  return kKernels;
}

}  // namespace quire
