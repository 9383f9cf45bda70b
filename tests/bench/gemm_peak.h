#pragma once

#include <cstddef>
#include <cstdint>

// What one thread can do at most, for shares in benchmarks.
namespace quire {

// Runs `iterations` of vpdpbusd zmm (AVX512_VNNI) or of vpmaddubsw + vpmaddwd + vpaddd ymm (AVX2), all in registers and
// without dependent chains that stall. Returns the operations done (a multiply-add is two).
double PeakOpsAvx512(int64_t iterations);
double PeakOpsAvx2(int64_t iterations);

// Loads all bytes, 64-byte aligned, in pieces of 256 (a last shorter one is left out). Returns their xor in 64-bit
// words.
uint64_t ReadBytes(const std::byte* data, int64_t bytes);

}  // namespace quire
