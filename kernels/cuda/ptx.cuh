#pragma once

// Every PTX instruction of sm_80 and sm_89 that kernels use: as inline assembly for nvcc, and as a twin for the
// emulator. Nothing else but ptx_sm90.cuh may contain inline assembly or ask for __CUDA_ARCH__. Semantics: PTX ISA.
// tests/simt/conformance_test.cc compares both forms, and both with hardware where there is some.

#include <cuda_fp8.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/simt.cuh"

namespace quire::ptx {

#if !SIMT_EMULATED
__device__ __forceinline__ uint32_t SharedAddress(const void* address) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(address));
}
#endif

// --- cp.async

// Copies kBytes (4, 8 or 16) from global to shared memory without waiting; the last kBytes - valid_bytes become zeros.
// Both addresses are multiples of kBytes. valid_bytes is 0 or kBytes where kBytes < 16.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(void* shared, const void* global, int valid_bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if SIMT_EMULATED
  simt::core::CopyAsync(shared, global, kBytes, valid_bytes);
#else
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global),
                 "r"(valid_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(SharedAddress(shared)), "l"(global), "n"(kBytes),
                 "r"(valid_bytes)
                 : "memory");
  }
#endif
}

// Ends the group of copies this thread has started.
__device__ __forceinline__ void CommitCopies() {
#if SIMT_EMULATED
  simt::core::CommitCopies();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kGroups of this thread's groups are in flight. Other threads see the data after a barrier.
template <int kGroups>
__device__ __forceinline__ void WaitCopies() {
#if SIMT_EMULATED
  simt::core::WaitCopies(kGroups);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// --- matrices: lane = 4 g + t in all fragments

// Four 8x8 matrices of 16-bit values; lane l passes the address of row l % 8 of matrix l / 8, a multiple of 16 bytes.
// out[m]: row g, columns 2 t and 2 t + 1 of matrix m.
__device__ __forceinline__ void LdMatrix4(uint32_t (&out)[4], const void* row SIMT_SITE_ARG) {
#if SIMT_EMULATED
  const void* rows[4];
  simt::core::LdMatrixRows(row, 4, false, rows, simt_site);
  for (int m = 0; m < 4; ++m) out[m] = static_cast<const uint32_t*>(rows[m])[simt::core::LaneId() % 4];
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
#endif
}

// The same of transposed matrices: out[m]: rows 2 t and 2 t + 1, column g.
__device__ __forceinline__ void LdMatrix4Transposed(uint32_t (&out)[4], const void* row SIMT_SITE_ARG) {
#if SIMT_EMULATED
  const void* rows[8];
  simt::core::LdMatrixRows(row, 4, true, rows, simt_site);
  const int column = simt::core::LaneId() / 4;
  for (int m = 0; m < 4; ++m) {
    out[m] = static_cast<const uint16_t*>(rows[2 * m])[column] |
             static_cast<uint32_t>(static_cast<const uint16_t*>(rows[2 * m + 1])[column]) << 16;
  }
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(row))
               : "memory");
#endif
}

// D += A (16x16, row) * B (16x8, column), f32 accumulators. a: rows g, g + 8, g, g + 8; columns 2 t .., 2 t .., 2 t + 8
// .., 2 t + 8 ... b0: rows 2 t .., b1: rows 2 t + 8 .., column g. d: row g, then g + 8, columns 2 t and 2 t + 1.
__device__ __forceinline__ void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1 SIMT_SITE_ARG) {
#if SIMT_EMULATED
  const uint32_t b[2] = {b0, b1};
  simt::core::WarpMma(simt::core::Mma::kBf16M16N8K16, a, b, d, d, simt_site);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

__device__ __forceinline__ void MmaF16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1 SIMT_SITE_ARG) {
#if SIMT_EMULATED
  const uint32_t b[2] = {b0, b1};
  simt::core::WarpMma(simt::core::Mma::kF16M16N8K16, a, b, d, d, simt_site);
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// --- arithmetic

// 2^x, approximate; subnormal results are 0. Exp2(-inf) is 0.
__device__ __forceinline__ float Exp2(float x) {
#if SIMT_EMULATED
  return std::exp2(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// log2(x), approximate.
__device__ __forceinline__ float Log2(float x) {
#if SIMT_EMULATED
  return std::log2(x);
#else
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

// The same bytes as another type of that size.
template <typename To, typename From>
__device__ __forceinline__ To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(reinterpret_cast<char*>(&to), reinterpret_cast<const char*>(&from), sizeof(to));
  return to;
}

// Two values rounded to nearest even and packed, `low` in the low half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  return BitCast<uint32_t>(__floats2bfloat162_rn(low, high));
}
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  return BitCast<uint32_t>(__floats2half2_rn(low, high));
}

// --- conversions of stored 8-bit values, two at a time: the bytes b0 and b1 of `bytes` (b1 << 8 | b0; higher bits are
// ignored) become a packed pair, b0 low. Exact.

// e4m3 to f16: sign and the 7 bits below land on f16's, 8 too low in the exponent; one exact multiplication corrects
// it, subnormals too. The NaN bytes 0x7f and 0xff read as +-480: the store never writes them for finite input.
__device__ __forceinline__ uint32_t E4m3PairToF16(uint32_t bytes) {
  const uint32_t spread = (bytes & 0xffu) << 8 | (bytes & 0xff00u) << 16;
  const uint32_t bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
  return BitCast<uint32_t>(__hmul2(BitCast<__half2>(bits), __float2half2_rn(256.0f)));
}

// int8 to bf16: 128 + the low 7 bits is a bf16 with those as its mantissa; what is subtracted is 128, or 256 where the
// sign bit is set.
__device__ __forceinline__ uint32_t Int8PairToBf16(uint32_t bytes) {
  const uint32_t spread = (bytes & 0xffu) | (bytes & 0xff00u) << 8;
  const uint32_t low = 0x43004300u | (spread & 0x007f007fu), offset = 0x43004300u | (spread & 0x00800080u);
  return BitCast<uint32_t>(__hsub2(BitCast<__nv_bfloat162>(low), BitCast<__nv_bfloat162>(offset)));
}

// f32 to e4m3, nearest even, saturating to +-448. NaN stays NaN.
__device__ __forceinline__ uint8_t ToE4m3(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

// --- the rest

// A barrier of its own for `threads` threads of the block; id 1..15.
__device__ __forceinline__ void NamedBarrier(int id, int threads SIMT_SITE_ARG) {
#if SIMT_EMULATED
  simt::core::BlockBarrier(id, threads, simt_site);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

// 16 bytes that are read once: through the read-only path, not kept in L1. Nothing in this launch may write them.
__device__ __forceinline__ uint4 LoadStreaming16(const void* address) {
#if SIMT_EMULATED
  return *static_cast<const uint4*>(address);
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
#endif
}

}  // namespace quire::ptx
