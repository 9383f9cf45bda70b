#pragma once

// What sm_90a adds: mbarrier, TMA tile loads and wgmma, as inline assembly for nvcc and as twins for the emulator. The
// twins follow the PTX ISA's text; run tests/simt/conformance_sm90 on hardware before a kernel relies on them.

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace quire::ptx {

#if SIMT_EMULATED
__device__ __forceinline__ uint32_t SharedAddress(const void* address) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(address) - simt::core::DynamicShared());
}
#endif

// --- mbarrier: 8 bytes of shared memory

// For `count` arrivals a phase. One thread calls it, then FenceMbarrierInit, then all meet in __syncthreads.
__device__ __forceinline__ void MbarrierInit(uint64_t* barrier, unsigned count) {
#if SIMT_EMULATED
  simt::core::MbarrierInit(barrier, count);
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(count) : "memory");
#endif
}
__device__ __forceinline__ void FenceMbarrierInit() {
#if !SIMT_EMULATED
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ __forceinline__ void MbarrierArrive(uint64_t* barrier) {
#if SIMT_EMULATED
  simt::core::MbarrierArrive(barrier, 0);
#else
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
#endif
}
// Arrives, and lets the phase wait for that many bytes of TMA loads besides.
__device__ __forceinline__ void MbarrierArriveExpecting(uint64_t* barrier, unsigned bytes) {
#if SIMT_EMULATED
  simt::core::MbarrierArrive(barrier, bytes);
#else
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
#endif
}
// Waits until the phase of this parity (0 first) has ended.
__device__ __forceinline__ void MbarrierWait(uint64_t* barrier, unsigned parity SIMT_SITE_ARG) {
#if SIMT_EMULATED
  simt::core::MbarrierWait(barrier, parity, simt_site);
#else
  uint32_t done = 0;
  while (done == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(SharedAddress(barrier)), "r"(parity)
                 : "memory");
  }
#endif
}

// --- TMA

// Loads the box of `map` whose first column is x and first row y into shared memory (a multiple of 1024), swizzled by
// 128 bytes; zeros outside the matrix. The bytes are counted at `barrier`.
__device__ __forceinline__ void TmaLoad2d(void* shared, const CUtensorMap* map, uint64_t* barrier, int x, int y) {
#if SIMT_EMULATED
  simt::core::TmaLoad2d(shared, map, barrier, x, y);
#else
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          SharedAddress(shared)),
      "l"(map), "r"(SharedAddress(barrier)), "r"(x), "r"(y)
      : "memory");
#endif
}

// Host: the map of a [rows][cols] matrix of bf16, box `box_rows` x 64. False if the driver or the alignment (base and
// row multiples of 16 bytes) refuses.
inline bool MakeTensorMap(CUtensorMap* map, const void* base, uint64_t rows, uint64_t cols, uint32_t box_rows) {
#if SIMT_EMULATED
  return simt::core::MakeTensorMap(map, base, rows, cols, box_rows);
#else
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      function == nullptr) {
    return false;
  }
  const cuuint64_t sizes[2] = {cols, rows}, strides[1] = {cols * 2};
  const cuuint32_t box[2] = {64, box_rows}, element_strides[2] = {1, 1};
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes, strides, box, element_strides,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
#endif
}

// --- wgmma: a warpgroup of 128 threads

// Descriptor of a K-major operand, rows of 128 bytes swizzled, 8-row groups 1024 bytes apart. `shared` lies in a tile
// whose start is a multiple of 1024.
__device__ __forceinline__ uint64_t WgmmaDescriptor(const void* shared) {
  return uint64_t{(SharedAddress(shared) & 0x3ffff) >> 4} | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
__device__ __forceinline__ void WgmmaFence() {
#if !SIMT_EMULATED
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void WgmmaCommit() {
#if SIMT_EMULATED
  simt::core::WgmmaCommit();
#else
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int kGroups>
__device__ __forceinline__ void WgmmaWait() {
#if SIMT_EMULATED
  simt::core::WgmmaWait(kGroups);
#else
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
#endif
}

// D (64x64) += A (64x16) * B (64x16)^T of bf16, from shared memory. Warp w of the group owns rows 16 w .. 16 w + 15;
// d[4 j ..] is the fragment of columns 8 j .. 8 j + 7. d holds garbage until a wait covers the product.
__device__ __forceinline__ void WgmmaBf16M64N64K16(float (&d)[32], uint64_t descriptor_a, uint64_t descriptor_b) {
#if SIMT_EMULATED
  simt::core::WgmmaM64N64K16(d, descriptor_a, descriptor_b);
#else
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(descriptor_a), "l"(descriptor_b));
#endif
}

}  // namespace quire::ptx
