// mma.sync on the fragments of the PTX ISA ("Matrix Fragments for mma.m16n8k16", "... mma.m16n8k32"). Lane = 4 g + t.
// A: register r holds row g + 8 (r & 1), columns t * n + (K / 2) (r >> 1) .., n values a register. B: register r holds
// column g, rows t * n + (K / 2) r ... C and D: values 0, 1 row g, 2, 3 row g + 8, columns 2 t and 2 t + 1.
#include <cuda_fp16.h>

#include <array>
#include <cmath>
#include <cstring>

#include "tests/simt/block.h"

namespace quire::simt {
namespace {

float FromE4m3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float value = exponent != 0 ? std::ldexp(1.0f + static_cast<float>(mantissa) / 8, exponent - 7)
                              : std::ldexp(static_cast<float>(mantissa) / 8, -6);
  if (exponent == 15 && mantissa == 7) value = NAN;
  return (bits & 128) != 0 ? -value : value;
}

float FromBits16(uint16_t bits, bool is_bf16) {
  if (!is_bf16) return __half2float(__half(__half_raw{bits}));
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

float Element(core::Mma kind, uint32_t packed, int index) {
  if (kind == core::Mma::kE4m3M16N8K32) return FromE4m3(static_cast<uint8_t>(packed >> (8 * index)));
  return FromBits16(static_cast<uint16_t>(packed >> (16 * index)), kind == core::Mma::kBf16M16N8K16);
}

struct Operands {
  const uint32_t* a;
  const uint32_t* b;
  const float* c;
};

Operands OperandsOf(const Lane& lane) {
  const auto* pointers = static_cast<const void* const*>(lane.in);
  return {static_cast<const uint32_t*>(pointers[0]), static_cast<const uint32_t*>(pointers[1]),
          static_cast<const float*>(pointers[2])};
}

}  // namespace

void FinishMma(Warp& warp, core::Mma kind) {
  ++stats().mma;
  const int depth = kind == core::Mma::kE4m3M16N8K32 ? 32 : 16, per_register = depth / 8;
  static std::array<std::array<float, 32>, 16> a;
  static std::array<std::array<float, 8>, 32> b;
  for (int l = 0; l < 32; ++l) {
    const Operands in = OperandsOf(*warp.lanes[l]);
    const int g = l / 4, t = l % 4;
    for (int j = 0; j < per_register; ++j) {
      for (int r = 0; r < 4; ++r)
        a[g + 8 * (r & 1)][t * per_register + depth / 2 * (r >> 1) + j] = Element(kind, in.a[r], j);
      for (int r = 0; r < 2; ++r) b[t * per_register + depth / 2 * r + j][g] = Element(kind, in.b[r], j);
    }
  }
  std::array<std::array<float, 8>, 16> product{};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column) product[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int l = 0; l < 32; ++l) {
    const float* c = OperandsOf(*warp.lanes[l]).c;
    auto* d = static_cast<float*>(warp.lanes[l]->out);
    for (int i = 0; i < 4; ++i) d[i] = c[i] + product[l / 4 + 8 * (i >> 1)][l % 4 * 2 + (i & 1)];
  }
}

}  // namespace quire::simt
