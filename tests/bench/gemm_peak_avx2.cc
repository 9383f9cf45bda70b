#include <immintrin.h>

#include "tests/bench/gemm_peak.h"

namespace quire {

double PeakOpsAvx2(int64_t iterations) {
  __m256i sum[10];
#pragma GCC unroll 10
  for (int r = 0; r < 10; ++r) sum[r] = _mm256_setzero_si256();
  const __m256i w = _mm256_set1_epi8(3), a = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (int r = 0; r < 10; ++r) {
      __m256i products;
      asm volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                   : "+x"(sum[r]), "=&x"(products)
                   : "x"(w), "x"(a), "x"(ones));
    }
  }
  return static_cast<double>(iterations) * 10 * 32 * 2;
}

uint64_t ReadBytes(const std::byte* data, int64_t bytes) {
  __m256i sum[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sum[i] = _mm256_setzero_si256();
  for (; bytes >= 256; bytes -= 256, data += 256) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      sum[i] = _mm256_xor_si256(sum[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + 32 * i)));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sum[0] = _mm256_xor_si256(sum[0], sum[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0) ^ _mm256_extract_epi64(sum[0], 1) ^
                               _mm256_extract_epi64(sum[0], 2) ^ _mm256_extract_epi64(sum[0], 3));
}

}  // namespace quire
