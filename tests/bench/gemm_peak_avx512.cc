#include <immintrin.h>

#include "tests/bench/gemm_peak.h"

namespace quire {

double PeakOpsAvx512(int64_t iterations) {
  __m512i sum[12];
#pragma GCC unroll 12
  for (int r = 0; r < 12; ++r) sum[r] = _mm512_setzero_si512();
  const __m512i w = _mm512_set1_epi8(3), a = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int r = 0; r < 12; ++r) asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum[r]) : "v"(w), "v"(a));
  }
  return static_cast<double>(iterations) * 12 * 64 * 2;
}

}  // namespace quire
