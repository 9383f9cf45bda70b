#pragma once

namespace quire {

// What the processor has and the operating system saves. Read once from CPUID and XCR0; baseline code.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512_vnni = false;  // AVX512F/BW/VL/DQ and AVX512_VNNI, avx2 included
};

const CpuFeatures& GetCpuFeatures();

}  // namespace quire
