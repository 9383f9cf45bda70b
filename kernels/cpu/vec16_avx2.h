#pragma once

#include <immintrin.h>

#include <cstdint>

// Vec16 in two AVX2 registers, with FMA and F16C: vec16_scalar.h has the contract. Only for units built with their
// flags.
namespace quire::avx2 {

struct Vec16 {
  static constexpr const char* kName = "avx2";
  static constexpr int kDotKeys = 4;
  static constexpr int kSumRows = 2;
  static constexpr int kSumVectors = 2;

  __m256 low;
  __m256 high;

  static Vec16 Zero() { return All(0); }
  static Vec16 All(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Vec16 Iota() { return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15)}; }
  static Vec16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec16 LoadN(const float* p, int n) {
    return {_mm256_maskload_ps(p, Below(n)), _mm256_maskload_ps(p + 8, Below(n - 8))};
  }
  static Vec16 LoadF16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Vec16 LoadF16N(const uint16_t* p, int n) {
    uint16_t values[16] = {};
    for (int l = 0; l < n; ++l) values[l] = p[l];
    return LoadF16(values);
  }
  static Vec16 LoadBf16(const uint16_t* p) {
    return {FromBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            FromBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Vec16 LoadBf16N(const uint16_t* p, int n) {
    uint16_t values[16] = {};
    for (int l = 0; l < n; ++l) values[l] = p[l];
    return LoadBf16(values);
  }
  static Vec16 LoadI8(const int8_t* p) {
    return {FromI8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
            FromI8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Vec16 LoadI8N(const int8_t* p, int n) {
    int8_t values[16] = {};
    for (int l = 0; l < n; ++l) values[l] = p[l];
    return LoadI8(values);
  }
  void Store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  void StoreN(float* p, int n) const {
    _mm256_maskstore_ps(p, Below(n), low);
    _mm256_maskstore_ps(p + 8, Below(n - 8), high);
  }
  void StoreF16N(uint16_t* p, int n) const {
    uint16_t values[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), SaturatedF16(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 8), SaturatedF16(high));
    for (int l = 0; l < n; ++l) p[l] = values[l];
  }
  void StoreBf16N(uint16_t* p, int n) const {
    uint16_t values[16];
    const __m256i packed = _mm256_packus_epi32(Bf16Of(low), Bf16Of(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values), _mm256_permute4x64_epi64(packed, 0xd8));
    for (int l = 0; l < n; ++l) p[l] = values[l];
  }
  void StoreI8N(int8_t* p, int n) const {
    int8_t values[16];
    const __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
    const __m256i words = _mm256_permute4x64_epi64(pairs, 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values),
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    for (int l = 0; l < n; ++l) p[l] = values[l];
  }
  float First() const { return _mm256_cvtss_f32(low); }

  friend Vec16 operator+(Vec16 a, Vec16 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  friend Vec16 operator-(Vec16 a, Vec16 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  friend Vec16 operator*(Vec16 a, Vec16 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  friend Vec16 operator/(Vec16 a, Vec16 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Vec16 Fnma(Vec16 a, Vec16 b, Vec16 c) {
    return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
  }
  static Vec16 Max(Vec16 a, Vec16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static Vec16 SelectLess(Vec16 a, Vec16 b, Vec16 x, Vec16 y) {
    return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static Vec16 NanOr(Vec16 a, Vec16 x) {
    return {_mm256_blendv_ps(x.low, a.low, _mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q)),
            _mm256_blendv_ps(x.high, a.high, _mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q))};
  }
  static Vec16 MulPow2(Vec16 x, Vec16 shifted) { return {MulPow2(x.low, shifted.low), MulPow2(x.high, shifted.high)}; }

  float Sum() const {
    const __m256 t8 = _mm256_add_ps(low, high);
    const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_shuffle_ps(t2, t2, 1)));
  }
  float Highest() const {
    const __m256 t8 = _mm256_max_ps(low, high);
    const __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_shuffle_ps(t2, t2, 1)));
  }
  // See vec16_avx512.h: the same steps on eight vectors at a time.
  static Vec16 Sums(const Vec16* x) { return {Sums8(x), Sums8(x + 8)}; }

 private:
  // Mask of the first n lanes of eight; n may lie outside [0, 8].
  static __m256i Below(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m128i SaturatedF16(__m256 x) {
    // min and max give their second operand if either is NaN.
    x = _mm256_max_ps(_mm256_set1_ps(-65504.0f), _mm256_min_ps(_mm256_set1_ps(65504.0f), x));
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static __m256 FromBf16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }
  static __m256 FromI8(__m128i x) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)); }
  // In the low halves of the lanes.
  static __m256i Bf16Of(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), nan, is_nan);
  }
  static __m256 MulPow2(__m256 x, __m256 shifted) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  }
  static __m256 Sums8(const Vec16* x) {
    __m256 t4[4];  // t4[m]: four lanes each of x[m], x[4 + m]
    for (int m = 0; m < 4; ++m) {
      const __m256 a = _mm256_add_ps(x[m].low, x[m].high), b = _mm256_add_ps(x[4 + m].low, x[4 + m].high);
      t4[m] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    const __m256 t2_01 = AddLanes<0x44, 0xee>(t4[0], t4[1]), t2_23 = AddLanes<0x44, 0xee>(t4[2], t4[3]);
    return AddLanes<0x88, 0xdd>(t2_01, t2_23);
  }
  template <int kLow, int kHigh>
  static __m256 AddLanes(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, kLow), _mm256_shuffle_ps(a, b, kHigh));
  }
};

}  // namespace quire::avx2
