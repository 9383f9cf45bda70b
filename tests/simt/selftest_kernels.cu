#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/simt.cuh"
#include "tests/simt/selftest_kernels.h"

namespace quire::simt {

// --- allowed

__global__ void EarlyExitKernel(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = static_cast<int>(threadIdx.x);
}

__global__ void SyncWarpKernel(int* out) {
  SIMT_SHARED(int, values, [32]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void NamedBarrierKernel(int* out) {
  SIMT_SHARED(int, values, [32]);
  if (threadIdx.x < 32) values[threadIdx.x] = static_cast<int>(threadIdx.x) * 3;
  ptx::NamedBarrier(2, 64);
  if (threadIdx.x >= 32) out[threadIdx.x - 32] = values[threadIdx.x - 32];
}

__global__ void HalfMasksKernel(int* out) {
  int lane = static_cast<int>(threadIdx.x);
  if (lane < 16) {
    out[lane] = __shfl_xor_sync(0x0000ffffu, lane, 1);
  } else {
    int value = lane;
    for (int i = 0; i < 3; ++i) value = __shfl_sync(0xffff0000u, value, 16 + ((lane + 1) & 15));
    out[lane] = value;
  }
}

__global__ void VotesKernel(int* out) {
  const unsigned odd = __ballot_sync(0xffffffffu, static_cast<int>(threadIdx.x & 1));
  const int sum = __reduce_add_sync(0xffffffffu, static_cast<int>(threadIdx.x));
  const int any = __any_sync(0xffffffffu, threadIdx.x == 3), all = __all_sync(0xffffffffu, threadIdx.x != 3);
  out[threadIdx.x] = sum + (odd == 0xaaaaaaaau ? 1000 : 0) + any * 10000 + all * 100000;
}

__global__ void AtomicsKernel(int* out, unsigned* flag) {
  atomicAdd(&flag[threadIdx.x & 3], 1u);
  atomicMax(&out[0], static_cast<int>(threadIdx.x));
  atomicAdd(reinterpret_cast<float*>(&out[1]), 0.5f);
}

__global__ void SpinOnFlagKernel(int* out, unsigned* flag) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0u) == 0) __nanosleep(20);
    __threadfence();
    out[0] = out[1];
  }
  if (threadIdx.x == 40) {
    out[1] = 9;
    __threadfence();
    atomicExch(flag, 1u);
  }
}

// The block that comes last sums what all wrote. kFenced false: the fences are missing.
template <bool kFenced>
__global__ void LastBlockKernel(int* out, unsigned* flag) {
  SIMT_SHARED(unsigned, ticket);
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1 + static_cast<int>(blockIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kFenced) __threadfence();
    ticket = atomicAdd(flag, 1u);
    if (kFenced) __threadfence();
  }
  __syncthreads();
  if (ticket == gridDim.x - 1) out[128 + threadIdx.x] = out[threadIdx.x] + out[blockDim.x + threadIdx.x];
}

__global__ void BlockReduceKernel(int* out) {
  const int count = __syncthreads_count(threadIdx.x % 3 == 0);
  const int all = __syncthreads_and(threadIdx.x < 64), any = __syncthreads_or(threadIdx.x == 7);
  out[threadIdx.x] = count + 100 * all + 1000 * any;
}

__global__ void FencedInBlockKernel(int* out, unsigned* flag) {
  if (threadIdx.x == 33) {
    out[5] = 7;
    __threadfence();
    atomicExch(flag, 1u);
  }
  if (threadIdx.x == 2) {
    while (atomicAdd(flag, 0u) == 0) __nanosleep(20);
    __threadfence();
    out[6] = out[5] + 1;
  }
}

// --- refused

__global__ void ShuffleFromExitedKernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane == 5) return;
  out[lane] = __shfl_sync(0xffffffffu, lane, 5);
}

__global__ void DeadlockKernel(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    ptx::NamedBarrier(1, 64);
  }
  out[threadIdx.x] = 1;
}

__global__ void DivergentBarrierKernel(int* out) {
  if (threadIdx.x < 32) {
    out[threadIdx.x] = 1;
    __syncthreads();
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();
  }
}

__global__ void OverlappingMasksKernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(lane < 16 ? 0x0001ffffu : 0xffff8000u, lane, lane);  // either waits for one of the other
}

__global__ void LaneOutsideMaskKernel(int* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, static_cast<int>(threadIdx.x), 0);
}

__global__ void MissingSyncWarpKernel(int* out) {
  SIMT_SHARED(int, values, [32]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[threadIdx.x ^ 1];
}

__global__ void ShuffleIsNoFenceKernel(int* out) {
  SIMT_SHARED(int, values, [32]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int seven = __shfl_xor_sync(0xffffffffu, 7, 1);
  out[threadIdx.x] = values[threadIdx.x ^ 1] + seven;
}

__global__ void MissingSyncThreadsKernel(int* out) {
  SIMT_SHARED(int, values, [64]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[threadIdx.x ^ 32];
}

__global__ void RaceAcrossBlocksKernel(int* out) { out[threadIdx.x] = static_cast<int>(blockIdx.x); }

__global__ void UninitialisedSharedKernel(int* out) {
  SIMT_SHARED(int, values, [64]);
  if (threadIdx.x < 32) values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void CopyNotWaitedKernel(int* out) {
  SIMT_DYNAMIC_SHARED(shared);
  ptx::CopyAsync<16>(shared + threadIdx.x * 16, out + threadIdx.x * 4, 16);
  ptx::CommitCopies();
}

__global__ void CopyMisalignedKernel(int* out) {
  SIMT_DYNAMIC_SHARED(shared);
  ptx::CopyAsync<16>(shared + threadIdx.x * 16, out + threadIdx.x * 4 + 1, 16);
  ptx::CommitCopies();
  ptx::WaitCopies<0>();
}

__global__ void LdMatrixMisalignedKernel(int* out) {
  SIMT_DYNAMIC_SHARED(shared);
  for (int i = 0; i < 8; ++i) reinterpret_cast<int*>(shared)[threadIdx.x * 8 + i] = i;
  __syncwarp();
  uint32_t matrices[4];
  ptx::LdMatrix4(matrices, shared + threadIdx.x * 16 + 8);
  out[threadIdx.x] = static_cast<int>(matrices[0]);
}

__global__ void MmaOfPartOfAWarpKernel(int* out) {
  if (threadIdx.x == 31) return;
  const uint32_t a[4] = {};
  float d[4] = {};
  ptx::MmaBf16(d, a, 0, 0);
  out[threadIdx.x] = static_cast<int>(d[0]);
}

__global__ void WriteBehindArrayKernel(int* out) { out[512 + threadIdx.x] = 1; }

__global__ void SharedOverrunKernel(int* out) {
  SIMT_SHARED(int, values, [64]);
  values[threadIdx.x + 1] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ void MisalignedVectorKernel(int* out) {
  *reinterpret_cast<float4*>(out + 4) = *reinterpret_cast<const float4*>(out + 9 + threadIdx.x);
}

cudaError_t LaunchSelfTest(SelfTest test, int* out, unsigned* flag) {
  LaunchConfig warp, two_warps, two_blocks, with_shared;
  warp.block = with_shared.block = dim3(32);
  two_warps.block = two_blocks.block = dim3(64);
  two_blocks.grid = dim3(2);
  with_shared.shared_bytes = 1024;
  switch (test) {
    case SelfTest::kEarlyExit:
      return Launch(two_warps, EarlyExitKernel, out);
    case SelfTest::kSyncWarp:
      return Launch(warp, SyncWarpKernel, out);
    case SelfTest::kNamedBarrier:
      return Launch(two_warps, NamedBarrierKernel, out);
    case SelfTest::kHalfMasks:
      return Launch(warp, HalfMasksKernel, out);
    case SelfTest::kVotes:
      return Launch(warp, VotesKernel, out);
    case SelfTest::kAtomics:
      return Launch(two_blocks, AtomicsKernel, out, flag);
    case SelfTest::kSpinOnFlag:
      return Launch(two_warps, SpinOnFlagKernel, out, flag);
    case SelfTest::kFencedAcrossBlocks:
      return Launch(two_blocks, LastBlockKernel<true>, out, flag);
    case SelfTest::kBlockReduce:
      return Launch(two_warps, BlockReduceKernel, out);
    case SelfTest::kFencedInBlock:
      return Launch(two_warps, FencedInBlockKernel, out, flag);
    case SelfTest::kShuffleFromExited:
      return Launch(warp, ShuffleFromExitedKernel, out);
    case SelfTest::kDeadlock:
      return Launch(two_warps, DeadlockKernel, out);
    case SelfTest::kDivergentBarrier:
      return Launch(two_warps, DivergentBarrierKernel, out);
    case SelfTest::kOverlappingMasks:
      return Launch(warp, OverlappingMasksKernel, out);
    case SelfTest::kLaneOutsideMask:
      return Launch(warp, LaneOutsideMaskKernel, out);
    case SelfTest::kMissingSyncWarp:
      return Launch(warp, MissingSyncWarpKernel, out);
    case SelfTest::kShuffleIsNoFence:
      return Launch(warp, ShuffleIsNoFenceKernel, out);
    case SelfTest::kMissingSyncThreads:
      return Launch(two_warps, MissingSyncThreadsKernel, out);
    case SelfTest::kRaceAcrossBlocks:
      return Launch(two_blocks, RaceAcrossBlocksKernel, out);
    case SelfTest::kMissingFence:
      return Launch(two_blocks, LastBlockKernel<false>, out, flag);
    case SelfTest::kUninitialisedShared:
      return Launch(two_warps, UninitialisedSharedKernel, out);
    case SelfTest::kCopyNotWaited:
      return Launch(with_shared, CopyNotWaitedKernel, out);
    case SelfTest::kCopyMisaligned:
      return Launch(with_shared, CopyMisalignedKernel, out);
    case SelfTest::kLdMatrixMisaligned:
      return Launch(with_shared, LdMatrixMisalignedKernel, out);
    case SelfTest::kMmaOfPartOfAWarp:
      return Launch(warp, MmaOfPartOfAWarpKernel, out);
    case SelfTest::kWriteBehindArray:
      return Launch(warp, WriteBehindArrayKernel, out);
    case SelfTest::kSharedOverrun:
      return Launch(two_warps, SharedOverrunKernel, out);
    case SelfTest::kMisalignedVector:
      return Launch(warp, MisalignedVectorKernel, out);
  }
  return cudaErrorInvalidValue;
}

}  // namespace quire::simt
