#pragma once

#include <cstddef>

// The race detector: happens-before clocks over the accesses of one launch, with SIMT's own ordering.
//   __syncthreads: everything before it, in the block, comes before everything after
//   __syncwarp(mask), named barriers: the same among the lanes that meet
//   shuffles, votes, mma, ldmatrix: no ordering
//   __threadfence; atomic -> atomic; __threadfence: between any two lanes
//   a launch comes after the launch before it; the blocks of one launch are unordered
// Kernels are compiled with -fsanitize=thread (the compiler then calls __tsan_read4 and so on at every access) but
// linked with race_hooks.cc in place of libtsan. In the other builds these are no-ops. Remembers 2 writers and 4
// readers of each 4 bytes, so a race among many writers of single bytes can be missed; judges executed paths only.
namespace quire::simt::race {

#if defined(SIMT_RACE)
void BeginLaunch();
void BeginBlock(unsigned lanes);
// Reads of it before a write in this block are reported.
void NewSharedMemory(const void* data, size_t bytes);
// Accesses from now on are this lane's; those to its stack do not count.
void SwitchTo(unsigned lane, const void* stack_begin, const void* stack_end);
void SwitchToHost();
void BlockBarrier(unsigned lanes);
void Join(const unsigned* lanes, int count);
void Fence(const volatile void* const* acquired, int count);
void AtomicRelease(const volatile void* address);
void Access(const volatile void* address, size_t bytes, bool write, bool atomic, void* return_address);
#else
inline void BeginLaunch() {}
inline void BeginBlock(unsigned) {}
inline void NewSharedMemory(const void*, size_t) {}
inline void SwitchTo(unsigned, const void*, const void*) {}
inline void SwitchToHost() {}
inline void BlockBarrier(unsigned) {}
inline void Join(const unsigned*, int) {}
inline void Fence(const volatile void* const*, int) {}
inline void AtomicRelease(const volatile void*) {}
inline void Access(const volatile void*, size_t, bool, bool, void*) {}
#endif

}  // namespace quire::simt::race
