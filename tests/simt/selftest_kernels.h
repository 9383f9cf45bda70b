#pragma once

#include <cuda_runtime.h>

// One small kernel a rule: what the emulator must allow, and what it must refuse. `out` is a device array of 512 ints,
// `flag` one of 4 zeros.
namespace quire::simt {

enum class SelfTest {
  // Allowed.
  kEarlyExit,
  kSyncWarp,
  kNamedBarrier,
  kHalfMasks,
  kVotes,
  kAtomics,
  kSpinOnFlag,
  kFencedAcrossBlocks,
  kBlockReduce,
  kFencedInBlock,
  // Refused.
  kShuffleFromExited,
  kDeadlock,
  kDivergentBarrier,
  kOverlappingMasks,
  kLaneOutsideMask,
  kMissingSyncWarp,
  kShuffleIsNoFence,
  kMissingSyncThreads,
  kRaceAcrossBlocks,
  kMissingFence,
  kUninitialisedShared,
  kCopyNotWaited,
  kCopyMisaligned,
  kLdMatrixMisaligned,
  kMmaOfPartOfAWarp,
  kWriteBehindArray,
  kSharedOverrun,
  kMisalignedVector
};

cudaError_t LaunchSelfTest(SelfTest test, int* out, unsigned* flag);

}  // namespace quire::simt
