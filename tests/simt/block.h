#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "tests/simt/emulator_core.h"
#include "tests/simt/fiber.h"

// The state of the block now running; private to the core. Nothing that a lane runs in here allocates where the race
// build would see it: fixed arrays and plain loops.
namespace quire::simt {

enum class LaneState : uint8_t { kReady, kAtBarrier, kInCollective, kDone };

// A cp.async in flight.
struct AsyncCopy {
  unsigned char* destination = nullptr;
  const unsigned char* source = nullptr;
  int bytes = 0, source_bytes = 0;  // the rest is zeros
  unsigned group = 0;
};

struct Warp;

struct Lane {
  Identity identity;
  Fiber* fiber = nullptr;
  Warp* warp = nullptr;
  uint16_t index = 0;    // in the block
  uint16_t in_warp = 0;  // 0..31
  LaneState state = LaneState::kReady;
  Site site;  // where it waits
  int barrier = 0;
  // Operands and results of a collective, on the lane's own stack.
  const void* in = nullptr;
  void* out = nullptr;
  int argument = 0, result = 0;
  // Atomics since the last fence: what the next fence acquires.
  std::array<const volatile void*, 16> atomics{};
  int num_atomics = 0;
  std::vector<AsyncCopy> copies;
  unsigned copy_group = 0;  // now open
};

enum class Collective : uint8_t { kBarrier, kShuffle, kBallot, kGather, kMma, kLdMatrix };

// Lanes on their way into one collective.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  Collective collective = Collective::kBarrier;
  int variant = 0;  // size of a shuffle, kind of an mma, shape of an ldmatrix
  Site site;
};

struct Warp {
  std::array<Lane*, 32> lanes{};
  unsigned live = 0;
  std::array<Meeting, 32> meetings;
  int num_meetings = 0;
};

struct Barrier {
  int arrived = 0;
  int count = -1;
  core::Reduction reduction = core::Reduction::kNone;
  int accumulated = 0;
  Site site;
};

struct Block {
  std::vector<Lane> lanes;
  std::vector<Warp> warps;
  std::vector<uint16_t> ready;  // a stack of lane indices
  std::array<Barrier, 16> barriers;
  int live = 0;
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  struct Variable {
    const void* key;
    unsigned char* data;
  };
  std::array<Variable, 64> variables;
  int num_variables = 0;
  Fiber main;
  void (*body)(void*) = nullptr;
  void* argument = nullptr;
  std::exception_ptr exception;
  uint64_t random = 1;
  uint64_t progress = 0, progress_seen = 0, spins = 0;  // to tell a wait that nothing can end
};

extern Block g_block;
extern Lane* g_lane;  // now running; null on the host

uint64_t NextRandom();
void MakeReady(Lane* lane);
// In the order the options ask for.
void MakeAllReady(Lane* const* lanes, int count);
// Gives up the turn; returns when the lane is chosen again.
void Yield();
// In random order: lets others go first, half of the time.
void MaybeYield();
bool SamePlace(const Site& a, const Site& b);

// A lane has returned from the kernel: meetings and barriers that waited only for it complete.
void CompleteWithout(Lane* lane);
void ReleaseBarriersWithout();
// TMA loads and products that a block left behind (hopper.cc).
void ForgetHopperState();
// The results of a complete meeting of the given collective (mma.cc).
void FinishMma(Warp& warp, core::Mma kind);

}  // namespace quire::simt
