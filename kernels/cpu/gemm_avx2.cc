#include <immintrin.h>

#include "kernels/cpu/gemm_kernels.h"

// Linear layers with AVX2, FMA and F16C: kernels/README.md, "Linear layers". Everything here has internal linkage.
namespace quire {
namespace {

constexpr int kMaxPanelRows = 4;
constexpr int kHalf = 8;  // outputs of a register, half a tile
constexpr int kMaxFloatRows = 2;

// As in the AVX-512 unit.
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

inline __m256i LoadBytes(const std::byte* at) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(at)); }

inline __m256i BroadcastQuad(const std::byte* quad) {
  return _mm256_set1_epi32(*reinterpret_cast<const AliasedInt*>(quad));
}

// Scales (or minimums) `index` of half a tile.
template <bool kF32>
inline __m256 LoadScales(const std::byte* array, int64_t index, int half) {
  const int64_t at = index * kTileOutputs + half * kHalf;
  if constexpr (kF32) return _mm256_load_ps(reinterpret_cast<const float*>(array) + at);
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(array + at * 2)));
}

// A load whose value nobody waits for, as assembly, or the compiler would drop it; or a prefetch.
template <int kRows>
inline void ReadAhead(const std::byte* line) {
  if constexpr (kLoadsAhead<kRows>) {
    __m128i unused;
    asm volatile("vmovd %1, %0" : "=x"(unused) : "m"(*reinterpret_cast<const AliasedInt*>(line)));
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

inline __m256i PairsToInt32(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

// Weights of quad `quad` of a block for half a tile, as unsigned bytes.
template <bool kNibbles>
inline __m256i LoadQuad(const std::byte* values, int quad, int half) {
  if constexpr (!kNibbles) return LoadBytes(values + 64 * quad + 32 * half);
  const __m256i both = LoadBytes(values + 64 * (quad / 2) + 32 * half);
  return _mm256_and_si256(quad % 2 == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
}

// sums[r][h] over quads [kBegin, kEnd) of a block, the offset undone. vpmaddubsw saturates at 2^15, so bytes up to 255
// go as |w| * (a with the sign of w), at most 2 * 128 * 127; smaller ones are added up as 16-bit pairs as far as fits.
template <WeightFormat kFormat, int kRows, int kHalves, int kBegin, int kEnd>
inline void DotQuads(const std::byte* values, const std::byte* fetch, const std::byte* q, int half,
                     const int32_t (&row_sums)[kRows], __m256i (&sums)[kRows][kHalves]) {
  constexpr IntFormat kInt = IntFormatOf(kFormat);
  constexpr bool kSigned = kInt.max == 255;
  constexpr int kQuadsInPairs = kSigned ? 1 : 32767 / (2 * 127 * kInt.max) / 2 * 2;
  constexpr int kStep = kQuadsInPairs < kEnd - kBegin ? kQuadsInPairs : kEnd - kBegin;
  static_assert((kEnd - kBegin) % kStep == 0);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = kSigned ? 0 : -kInt.offset() * row_sums[r];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) sums[r][h] = _mm256_set1_epi32(start);
  }
#pragma GCC unroll 8
  for (int begin = kBegin; begin < kEnd; begin += kStep) {
    __m256i pairs[kRows][kHalves];
#pragma GCC unroll 8
    for (int quad = begin; quad < begin + kStep; ++quad) {
      if (half == 0 && quad % (kInt.nibbles ? 2 : 1) == 0) {
        ReadAhead<kRows>(fetch + 64 * (kInt.nibbles ? quad / 2 : quad));
      }
      __m256i w[kHalves];
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        w[h] = LoadQuad<kInt.nibbles>(values, quad, half + h);
        if constexpr (kSigned) w[h] = _mm256_xor_si256(w[h], _mm256_set1_epi8(-128));
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i a = BroadcastQuad(q + kBlock * r + 4 * quad);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          __m256i products;
          if constexpr (kSigned) {
            products = _mm256_maddubs_epi16(_mm256_abs_epi8(w[h]), _mm256_sign_epi8(a, w[h]));
          } else {
            products = _mm256_maddubs_epi16(w[h], a);
          }
          pairs[r][h] = quad == begin ? products : _mm256_add_epi16(pairs[r][h], products);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) sums[r][h] = _mm256_add_epi32(sums[r][h], PairsToInt32(pairs[r][h]));
    }
  }
}

// acc = fma(scale * activation scale, sum, acc).
template <int kRows, int kHalves>
inline void Accumulate(const __m256 (&scale)[kHalves], const Record<kRows>& record,
                       const __m256i (&sums)[kRows][kHalves], __m256 (&acc)[kRows][kHalves]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m256 row_scale = _mm256_broadcast_ss(&record.scale[r]);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(scale[h], row_scale), _mm256_cvtepi32_ps(sums[r][h]), acc[r][h]);
    }
  }
}

template <bool kF32, int kHalves>
inline void LoadHalves(const std::byte* array, int64_t index, int half, __m256 (&scales)[kHalves]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) scales[h] = LoadScales<kF32>(array, index, half + h);
}

// Stores the `count` first of 8 outputs, or adds them to `out`.
inline void StoreOutputs(__m256 sum, const float* bias, bool add, int64_t count, float* out) {
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count < kHalf ? count : kHalf)),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  if (bias != nullptr) sum = _mm256_add_ps(sum, _mm256_maskload_ps(bias, mask));
  if (add) sum = _mm256_add_ps(_mm256_maskload_ps(out, mask), sum);
  _mm256_maskstore_ps(out, mask, sum);
}

// Half a tile (kHalves == 1: half 0 or 1) or a whole one for kRows rows.
template <WeightFormat kFormat, int kRows, int kHalves>
void IntHalves(const WeightTiles& weight, int64_t tile_index, int half, const std::byte* panel,
               const OutputBlock& out) {
  constexpr IntFormat kInt = IntFormatOf(kFormat);
  constexpr int kValueBytes = kInt.value_bytes();
  constexpr int kBlockBytes = kValueBytes + kInt.scale_bytes() + kInt.minimum_bytes();
  const std::byte* tile = weight.data + tile_index * weight.tile_bytes;
  const std::byte* minimums = tile + weight.minimums_offset;
  const std::byte* values = tile + weight.values_offset;
  __m256 acc[kRows][kHalves];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) acc[r][h] = _mm256_setzero_ps();
  }
  if (out.add) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(out.data + r * out.stride + tile_index * kTileOutputs, 1);
  }
  const auto* record_at = reinterpret_cast<const Record<kRows>*>(panel);
  const std::byte* fetch = tile + kFetchBytes<kRows>;
  for (int64_t b = 0; b < weight.blocks; ++b, values += kValueBytes, fetch += kBlockBytes, ++record_at) {
    const Record<kRows>& record = *record_at;
    const std::byte* q = record.q[0];
    __m256i sums[kRows][kHalves];
    __m256 scale[kHalves];
    int32_t row_sums[kRows];
    if constexpr (kInt.groups == 2) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) row_sums[r] = record.sum[0][r];
      DotQuads<kFormat, kRows, kHalves, 0, 4>(values, fetch, q, half, row_sums, sums);
      LoadHalves<kInt.f32_scales>(tile, 2 * b, half, scale);
      Accumulate(scale, record, sums, acc);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) row_sums[r] = record.sum[1][r];
      DotQuads<kFormat, kRows, kHalves, 4, 8>(values, fetch, q, half, row_sums, sums);
    } else {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) row_sums[r] = record.sum[0][r] + record.sum[1][r];
      DotQuads<kFormat, kRows, kHalves, 0, 8>(values, fetch, q, half, row_sums, sums);
    }
    LoadHalves<kInt.f32_scales>(tile, kInt.groups * b + kInt.groups - 1, half, scale);
    Accumulate(scale, record, sums, acc);
    if (half == 0) FetchScales<kFormat, kRows>(fetch);
    if constexpr (kInt.has_minimum) {
      LoadHalves<kInt.f32_scales>(minimums, b, half, scale);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256 scaled_sum = _mm256_broadcast_ss(&record.scaled_sum[r]);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) acc[r][h] = _mm256_fmadd_ps(scale[h], scaled_sum, acc[r][h]);
      }
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const int64_t first = tile_index * kTileOutputs + (half + h) * kHalf;
    if (first >= out.outputs) break;
    const float* bias = out.bias != nullptr ? out.bias + first : nullptr;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      StoreOutputs(acc[r][h], bias, out.add, out.outputs - first, out.data + r * out.stride + first);
    }
  }
}

template <WeightFormat kFormat>
void IntTiles(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const std::byte* panel,
              const OutputBlock& out) {
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    switch (out.rows) {
      case 1:
        IntHalves<kFormat, 1, 2>(weight, tile, 0, panel, out);
        break;
      case 2:
        IntHalves<kFormat, 2, 2>(weight, tile, 0, panel, out);
        break;
      case 3:
        for (int half = 0; half < 2; ++half) IntHalves<kFormat, 3, 1>(weight, tile, half, panel, out);
        break;
      default:
        for (int half = 0; half < 2; ++half) IntHalves<kFormat, 4, 1>(weight, tile, half, panel, out);
        break;
    }
  }
}

void IntegerGemm(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const std::byte* panel,
                 const OutputBlock& out) {
  switch (weight.format) {
    case WeightFormat::kQ8_0:
      return IntTiles<WeightFormat::kQ8_0>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ4_0:
      return IntTiles<WeightFormat::kQ4_0>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ4_1:
      return IntTiles<WeightFormat::kQ4_1>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ5_0:
      return IntTiles<WeightFormat::kQ5_0>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ5_1:
      return IntTiles<WeightFormat::kQ5_1>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ4_K:
      return IntTiles<WeightFormat::kQ4_K>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ5_K:
      return IntTiles<WeightFormat::kQ5_K>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kQ6_K:
      return IntTiles<WeightFormat::kQ6_K>(weight, tile_begin, tile_end, panel, out);
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      break;
  }
}

// Quantises 32 inputs of one row.
inline void QuantizeBlock(const float* x, int32_t rows, int32_t r, std::byte* record) {
  float* const floats = reinterpret_cast<float*>(record);

  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256 values[4];
  // Compared as integers, magnitudes are ordered zero .. infinity, NaN.
  __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    values[i] = _mm256_loadu_ps(x + 8 * i);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(values[i]), magnitude));
  }
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  const uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(four));
  const float scale = bits < kLeastAbsMaxBits ? 0.0f : absmax / 127.0f;
  __m256i packed = _mm256_setzero_si256();
  if (bits >= kLeastAbsMaxBits && bits < kInfinityBits) {
    const __m256 inverse = _mm256_set1_ps(127.0f / absmax);
    __m256i ints[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) ints[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse));
    packed = _mm256_packs_epi16(_mm256_packs_epi32(ints[0], ints[1]), _mm256_packs_epi32(ints[2], ints[3]));
    // Packing works within 128-bit lanes: put the groups of four back in order.
    packed = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(record + rows * 16 + r * kBlock), packed);
  __m256i sums = PairsToInt32(_mm256_maddubs_epi16(_mm256_set1_epi8(1), packed));
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

// 8 weights of a row of a float format.
template <WeightFormat kFormat>
inline __m256 LoadWeights(const std::byte* row, int64_t k) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + k);
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * k));
    if constexpr (kFormat == WeightFormat::kF16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

// The reduction tree of the 16 lanes: + 8, + 4, + 2, + 1.
inline float Reduce(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// 4 / kRows outputs from `first` of the part on, of kRows rows.
template <WeightFormat kFormat, int kRows>
void FloatOutputs(const WeightTiles& weight, const std::byte* weights, int64_t first, const float* x, int64_t stride,
                  const OutputBlock& out) {
  constexpr int kOutputs = 4 / kRows;
  const int64_t row_bytes = weight.tile_bytes / kTileOutputs;
  __m256 acc[kRows][kOutputs][2];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) acc[r][o][0] = acc[r][o][1] = _mm256_setzero_ps();
  }
  for (int64_t k = 0; k < weight.padded_cols; k += kFloatLanes) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256 inputs[kRows];
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) inputs[r] = _mm256_loadu_ps(x + r * stride + k + 8 * half);
#pragma GCC unroll 4
      for (int o = 0; o < kOutputs; ++o) {
        const __m256 w = LoadWeights<kFormat>(weights + o * row_bytes, k + 8 * half);
#pragma GCC unroll 2
        for (int r = 0; r < kRows; ++r) acc[r][o][half] = _mm256_fmadd_ps(w, inputs[r], acc[r][o][half]);
      }
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int o = 0; o < kOutputs; ++o) {
      if (first + o >= out.outputs) break;
      float* const to = out.data + r * out.stride + first + o;
      float sum = Reduce(acc[r][o][0], acc[r][o][1]);
      if (out.bias != nullptr) sum += out.bias[first + o];
      *to = out.add ? *to + sum : sum;
    }
  }
}

template <WeightFormat kFormat, int kRows>
void FloatTiles(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t stride,
                const OutputBlock& out) {
  constexpr int kOutputs = 4 / kRows;
  const std::byte* weights = weight.data + tile_begin * weight.tile_bytes;
  for (int64_t first = tile_begin * kTileOutputs; first < tile_end * kTileOutputs && first < out.outputs;
       first += kOutputs, weights += weight.tile_bytes / kTileOutputs * kOutputs) {
    FloatOutputs<kFormat, kRows>(weight, weights, first, x, stride, out);
  }
}

template <WeightFormat kFormat>
void FloatTiles(const WeightTiles& weight, int64_t tile_begin, int64_t tile_end, const float* x, int64_t stride,
                const OutputBlock& out) {
  if (out.rows == 1) return FloatTiles<kFormat, 1>(weight, tile_begin, tile_end, x, stride, out);
  FloatTiles<kFormat, 2>(weight, tile_begin, tile_end, x, stride, out);
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

const GemmKernels& GemmKernelsAvx2() {
  static constexpr GemmKernels kKernels = {"avx2", kMaxPanelRows, kMaxFloatRows, Quantize, IntegerGemm, FloatGemm};
  return kKernels;
}

}  // namespace quire
