#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

#include "tests/simt/device.h"

// What the kernel-side header (emulator.h) asks of the emulator's core. One block runs at a time, each of its threads
// ("lanes") as a fiber on one OS thread. Not thread-safe. Sizes in bytes. A call that waits or exchanges takes the
// place in the source it was made from: lanes that meet from different places are reported.
//
// The core is never built with -fsanitize=thread: it moves data between lanes behind the race detector's back.
namespace quire::simt {

using Site = std::source_location;

// Coordinates of the lane now running, behind threadIdx and its family.
struct Identity {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
extern Identity* g_identity;

struct LaunchConfig {
  dim3 grid{1, 1, 1};
  dim3 block{1, 1, 1};
  size_t shared_bytes = 0;  // dynamic
  cudaStream_t stream = nullptr;
};

namespace core {

// Runs body(argument) once for every lane of the grid. cudaErrorInvalidConfiguration for what a GPU would refuse,
// cudaErrorLaunchFailure if a rule was broken (TakeViolations has the text).
cudaError_t RunGrid(const LaunchConfig& config, void (*body)(void*), void* argument);

// Puts work into a stream.
void Enqueue(cudaStream_t stream, std::function<cudaError_t()> work);

// --- shared memory of the block now running: new for each block, exact size, filled with NaN bytes
unsigned char* DynamicShared();
size_t DynamicSharedBytes();
bool InDynamicShared(const void* address, size_t bytes);
// The static variable known by `key`; made at its first use in a block.
void* SharedVariable(const void* key, size_t bytes, size_t alignment);

// --- barriers. `count` < 0: all live lanes of the block.
void BlockBarrier(int id, int count, Site site);
enum class Reduction { kNone, kCount, kAnd, kOr };
int BlockReduce(Reduction reduction, bool predicate, Site site);

// --- warp collectives: each waits until every live lane of `mask` came with the same one; the last computes the
// results. Only WarpBarrier orders memory.
void WarpBarrier(unsigned mask, Site site);
// Copies `bytes` from lane `source`'s `value`. Reports a source outside the mask.
void Shuffle(unsigned mask, const void* value, int bytes, int source, void* out, Site site);
unsigned Ballot(unsigned mask, bool predicate, Site site);
// Gives every lane the 4-byte values of all; returns which lanes came.
unsigned Gather(unsigned mask, const void* value, void* out, Site site);

enum class Mma { kBf16M16N8K16, kF16M16N8K16, kE4m3M16N8K32 };
// Fragments of the PTX ISA: a[4], b[2], c[4], d[4].
void WarpMma(Mma kind, const uint32_t* a, const uint32_t* b, const float* c, float* d, Site site);
// The row addresses this lane has to load from. Plain: rows[m] is row lane / 4 of matrix m. Transposed: rows[2 m] and
// rows[2 m + 1] are rows 2 (lane % 4) and the next.
void LdMatrixRows(const void* mine, int matrices, bool transposed, const void** rows, Site site);

int LaneId();
int WarpId();

// --- memory order
void ThreadFence();
void BeforeAtomic(const volatile void* address);
void AfterAtomic(const volatile void* address);
// A turn of a loop that waits for another lane.
void SpinPause(Site site);

// --- cp.async: the destination is NaN from the issue on; data lands when a wait of the issuing lane covers it.
void CopyAsync(void* destination, const void* source, int bytes, int source_bytes);
void CommitCopies();
void WaitCopies(int groups_in_flight);  // < 0: none, not even the open group

// --- mbarrier, TMA, wgmma (hopper.cc)
void MbarrierInit(uint64_t* barrier, unsigned count);
void MbarrierArrive(uint64_t* barrier, unsigned expected_bytes);
void MbarrierWait(uint64_t* barrier, unsigned parity, Site site);
bool MbarrierTest(uint64_t* barrier, unsigned parity);
// A map of a [rows][cols] matrix of 16-bit values, box of `box_rows` x 64, 128-byte swizzle. False: misaligned.
bool MakeTensorMap(void* map, const void* base, uint64_t rows, uint64_t cols, uint32_t box_rows);
void TmaLoad2d(void* destination, const void* map, uint64_t* barrier, int x, int y);
// Adds the product m64n64k16 of two shared tiles of bf16 to d[32], which holds NaN until a wait covers it.
void WgmmaM64N64K16(float* d, uint64_t descriptor_a, uint64_t descriptor_b);
void WgmmaCommit();
void WgmmaWait(int groups_in_flight);

// --- the PTX interpreter (ptx_interpreter.cc); true once ReadPtx was called
bool PtxIsLoaded();
cudaError_t RunPtx(const LaunchConfig& config, const void* function, const void* const* arguments, const size_t* sizes,
                   int count);

}  // namespace core
}  // namespace quire::simt
