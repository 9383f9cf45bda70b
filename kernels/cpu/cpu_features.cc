#include "kernels/cpu/cpu_features.h"

#include <cpuid.h>

#include <cstdint>

namespace quire {
namespace {

constexpr bool Has(uint32_t word, int bit) { return (word >> bit & 1u) != 0; }

uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Bits of CPUID leaf 1 ecx, leaf 7 ebx and ecx, and of XCR0: Intel SDM volume 2A (CPUID) and volume 1, 13.3.
CpuFeatures Detect() {
  CpuFeatures features;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return features;
  const bool fma = Has(ecx, 12), osxsave = Has(ecx, 27), avx = Has(ecx, 28), f16c = Has(ecx, 29);
  if (!osxsave || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return features;
  const uint64_t saved = ReadXcr0();
  const bool ymm_saved = (saved & 0x6) == 0x6;    // SSE, AVX
  const bool zmm_saved = (saved & 0xe6) == 0xe6;  // and opmask, both halves of ZMM
  features.avx2 = ymm_saved && avx && fma && f16c && Has(ebx, 5);
  const bool f = Has(ebx, 16), dq = Has(ebx, 17), bw = Has(ebx, 30), vl = Has(ebx, 31), vnni = Has(ecx, 11);
  features.avx512_vnni = features.avx2 && zmm_saved && f && dq && bw && vl && vnni;
  return features;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace quire
