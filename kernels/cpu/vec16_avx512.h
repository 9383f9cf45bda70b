#pragma once

#include <immintrin.h>

#include <cstdint>

// Vec16 in one AVX-512 register: vec16_scalar.h has the contract. Only for units built with AVX-512 flags.
namespace quire::avx512 {

struct Vec16 {
  static constexpr const char* kName = "avx512";
  static constexpr int kDotKeys = 16;
  static constexpr int kSumRows = 4;
  static constexpr int kSumVectors = 4;

  __m512 v;

  static __mmask16 First(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static Vec16 Zero() { return {_mm512_setzero_ps()}; }
  static Vec16 All(float value) { return {_mm512_set1_ps(value)}; }
  static Vec16 Iota() { return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}; }
  static Vec16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec16 LoadN(const float* p, int n) { return {_mm512_maskz_loadu_ps(First(n), p)}; }
  static Vec16 LoadF16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static Vec16 LoadF16N(const uint16_t* p, int n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(n), p))}; }
  static Vec16 LoadBf16(const uint16_t* p) { return FromBf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
  static Vec16 LoadBf16N(const uint16_t* p, int n) { return FromBf16(_mm256_maskz_loadu_epi16(First(n), p)); }
  static Vec16 LoadI8(const int8_t* p) { return FromI8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static Vec16 LoadI8N(const int8_t* p, int n) { return FromI8(_mm_maskz_loadu_epi8(First(n), p)); }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreN(float* p, int n) const { _mm512_mask_storeu_ps(p, First(n), v); }
  void StoreF16N(uint16_t* p, int n) const {
    // min and max give their second operand if either is NaN.
    const __m512 limit = _mm512_set1_ps(65504.0f);
    const __m512 low = _mm512_min_ps(limit, v);
    const __m512 x = _mm512_max_ps(_mm512_set1_ps(-65504.0f), low);
    _mm256_mask_storeu_epi16(p, First(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  void StoreBf16N(uint16_t* p, int n) const {
    const __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __m512i result =
        _mm512_mask_mov_epi32(_mm512_srli_epi32(rounded, 16), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
    _mm256_mask_storeu_epi16(p, First(n), _mm512_cvtepi32_epi16(result));
  }
  void StoreI8N(int8_t* p, int n) const {
    _mm_mask_storeu_epi8(p, First(n), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  float First() const { return _mm512_cvtss_f32(v); }

  friend Vec16 operator+(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec16 operator-(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec16 operator*(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec16 operator/(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec16 Fnma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
  static Vec16 Max(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec16 SelectLess(Vec16 a, Vec16 b, Vec16 x, Vec16 y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
  }
  static Vec16 NanOr(Vec16 a, Vec16 x) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), x.v, a.v)};
  }
  static Vec16 MulPow2(Vec16 x, Vec16 shifted) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), exponent))};
  }

  float Sum() const {
    const __m256 t8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_add_ss(t2, _mm_shuffle_ps(t2, t2, 1)));
  }
  float Highest() const {
    const __m256 t8 = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 t4 = _mm_max_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
    const __m128 t2 = _mm_max_ps(t4, _mm_movehl_ps(t4, t4));
    return _mm_cvtss_f32(_mm_max_ss(t2, _mm_shuffle_ps(t2, t2, 1)));
  }
  // The tree of sixteen vectors at once: each step adds two halves of two vectors into one, 15 additions in all.
  static Vec16 Sums(const Vec16* x) {
    __m512 t4[4];  // t4[m]: four lanes each of x[m], x[4 + m], x[8 + m], x[12 + m]
    for (int m = 0; m < 4; ++m) {
      const __m512 ab = AddQuarters<0x44, 0xee>(x[m].v, x[4 + m].v);
      const __m512 cd = AddQuarters<0x44, 0xee>(x[8 + m].v, x[12 + m].v);
      t4[m] = AddQuarters<0x88, 0xdd>(ab, cd);
    }
    const __m512 t2_01 = AddLanes<0x44, 0xee>(t4[0], t4[1]), t2_23 = AddLanes<0x44, 0xee>(t4[2], t4[3]);
    return {AddLanes<0x88, 0xdd>(t2_01, t2_23)};
  }

 private:
  static Vec16 FromBf16(__m256i x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))}; }
  static Vec16 FromI8(__m128i x) { return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(x))}; }
  template <int kLow, int kHigh>
  static __m512 AddQuarters(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, kLow), _mm512_shuffle_f32x4(a, b, kHigh));
  }
  template <int kLow, int kHigh>
  static __m512 AddLanes(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, kLow), _mm512_shuffle_ps(a, b, kHigh));
  }
};

}  // namespace quire::avx512
