#include "tests/simt/block.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/simt/race.h"

namespace quire::simt {

Block g_block;
Lane* g_lane = nullptr;
Identity* g_identity = nullptr;

namespace {

Options g_options;
Stats g_stats;
std::vector<Violation> g_violations;
std::vector<std::unique_ptr<Fiber>> g_fibers;
bool g_busy = false;
uint64_t g_broken_rules = 0;  // all of them, kept or not

}  // namespace

Options& options() { return g_options; }
Stats& stats() { return g_stats; }

void ReportViolation(const char* kind, const char* format, ...) {
  char text[1600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  ++g_broken_rules;
  if (g_violations.size() >= 32) return;
  std::string full = text;
  if (g_lane != nullptr) {
    const Identity& id = g_lane->identity;
    std::snprintf(text, sizeof(text), " [block (%u,%u,%u) thread (%u,%u,%u)]", id.block.x, id.block.y, id.block.z,
                  id.thread.x, id.thread.y, id.thread.z);
    full += text;
  }
  g_violations.push_back({kind, full});
}

std::vector<Violation> TakeViolations() { return std::exchange(g_violations, {}); }

uint64_t NextRandom() {
  uint64_t& x = g_block.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}

bool SamePlace(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

// --- turns

void Yield() {
  ++g_stats.switches;
  g_block.main.SwitchFrom(*g_lane->fiber);
}

void MaybeYield() {
  if (g_options.lanes != Order::kRandom || (NextRandom() & 1) == 0) return;
  MakeReady(g_lane);
  Yield();
}

void MakeReady(Lane* lane) {
  lane->state = LaneState::kReady;
  g_block.ready.push_back(lane->index);
}

void MakeAllReady(Lane* const* lanes, int count) {
  if (g_options.lanes == Order::kForward) {
    for (int i = count - 1; i >= 0; --i) MakeReady(lanes[i]);
  } else {
    for (int i = 0; i < count; ++i) MakeReady(lanes[i]);
  }
}

namespace {

void LaneMain() {
  Fiber::Entered(g_block.main);
  Lane* lane = g_lane;
  try {
    g_block.body(g_block.argument);
    if (!lane->copies.empty()) {
      ReportViolation("cp.async-not-waited", "lane %d exits with cp.async in flight", lane->index);
    }
    CompleteWithout(lane);
  } catch (...) {
    g_block.exception = std::current_exception();
  }
  lane->state = LaneState::kDone;
  g_block.main.SwitchFrom(*lane->fiber, /*last=*/true);
  std::abort();
}

[[noreturn]] void Deadlock() {
  std::string text = "no lane can run:";
  int listed = 0, done = 0;
  for (const Lane& lane : g_block.lanes) {
    if (lane.state == LaneState::kDone) {
      ++done;
    } else if (++listed <= 12) {
      text += " [lane " + std::to_string(lane.index) + " waits at a " +
              (lane.state == LaneState::kAtBarrier ? "barrier " : "warp collective ") + lane.site.file_name() + ":" +
              std::to_string(lane.site.line()) + "]";
    }
  }
  ReportViolation("deadlock", "%s (%d of %zu lanes have exited)", text.c_str(), done, g_block.lanes.size());
  throw std::runtime_error("deadlock");
}

void RunLanes() {
  Block& block = g_block;
  while (block.live > 0) {
    if (block.ready.empty()) Deadlock();
    const size_t last = block.ready.size() - 1;
    if (g_options.lanes == Order::kRandom) std::swap(block.ready[NextRandom() % (last + 1)], block.ready[last]);
    Lane* lane = &block.lanes[block.ready[last]];
    block.ready.pop_back();
    g_lane = lane;
    g_identity = &lane->identity;
    race::SwitchTo(lane->index, lane->fiber->stack(), lane->fiber->stack() + lane->fiber->stack_bytes());
    ++g_stats.switches;
    lane->fiber->SwitchFrom(block.main);
    race::SwitchToHost();
    g_lane = nullptr;
    if (lane->state == LaneState::kDone) --block.live;
    if (block.exception) std::rethrow_exception(std::exchange(block.exception, nullptr));
  }
}

// --- shared memory

unsigned char* AllocateShared(size_t bytes, size_t alignment) {
  void* data = nullptr;
  if (posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes) != 0) std::abort();
  std::memset(data, 0xff, bytes);
  race::NewSharedMemory(data, bytes);
  return static_cast<unsigned char*>(data);
}

void CloseShared() {
  std::free(g_block.shared);
  for (int i = 0; i < g_block.num_variables; ++i) std::free(g_block.variables[i].data);
  g_block.shared = nullptr;
  g_block.num_variables = 0;
}

void StartBlock(const LaunchConfig& config, unsigned lanes, uint64_t number) {
  Block& block = g_block;
  CloseShared();
  ForgetHopperState();
  race::BeginBlock(lanes);
  block.shared_bytes = config.shared_bytes;
  if (config.shared_bytes > 0) block.shared = AllocateShared(config.shared_bytes, 1024);
  block.barriers.fill({});
  for (Warp& warp : block.warps) warp.live = 0, warp.num_meetings = 0;
  const uint64_t plane = uint64_t{config.grid.x} * config.grid.y;
  const uint3 place{static_cast<unsigned>(number % config.grid.x),
                    static_cast<unsigned>(number / config.grid.x % config.grid.y),
                    static_cast<unsigned>(number / plane)};
  std::vector<Lane*> all;
  for (unsigned i = 0; i < lanes; ++i) {
    Lane& lane = block.lanes[i];
    const dim3& size = config.block;
    lane.identity = {{i % size.x, i / size.x % size.y, i / (size.x * size.y)}, place, size, config.grid};
    lane.index = static_cast<uint16_t>(i);
    lane.in_warp = static_cast<uint16_t>(i % 32);
    lane.warp = &block.warps[i / 32];
    lane.warp->lanes[i % 32] = &lane;
    lane.warp->live |= 1u << (i % 32);
    lane.num_atomics = 0;
    lane.copies.clear();
    lane.copies.reserve(512);
    lane.copy_group = 0;
    lane.fiber = g_fibers[i].get();
    lane.fiber->Start(&LaneMain);
    all.push_back(&lane);
  }
  block.ready.clear();
  block.ready.reserve(4096);
  block.live = static_cast<int>(lanes);
  MakeAllReady(all.data(), static_cast<int>(lanes));
  g_stats.blocks += 1;
  g_stats.lanes += lanes;
}

std::vector<uint64_t> BlockOrder(uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) order[i] = g_options.blocks == Order::kReverse ? blocks - 1 - i : i;
  if (g_options.blocks == Order::kRandom) {
    for (uint64_t i = blocks - 1; i > 0; --i) std::swap(order[i], order[NextRandom() % (i + 1)]);
  }
  return order;
}

}  // namespace

namespace core {

cudaError_t RunGrid(const LaunchConfig& config, void (*body)(void*), void* argument) {
  const unsigned lanes = config.block.x * config.block.y * config.block.z;
  const uint64_t blocks = uint64_t{config.grid.x} * config.grid.y * config.grid.z;
  const bool bad_grid = blocks == 0 || config.grid.x > 0x7fffffffu || config.grid.y > 65535 || config.grid.z > 65535;
  if (lanes == 0 || lanes > 1024 || bad_grid || config.shared_bytes > 227 * 1024) return cudaErrorInvalidConfiguration;
  if (g_busy) {
    ReportViolation("nested-launch", "a kernel launches another");
    return cudaErrorLaunchFailure;
  }
  g_busy = true;
  const uint64_t broken_before = g_broken_rules;
  Block& block = g_block;
  block.body = body;
  block.argument = argument;
  block.random = g_options.seed * 0x9E3779B97F4A7C15ull | 1;
  block.lanes.resize(lanes);
  block.warps.resize((lanes + 31) / 32);
  while (g_fibers.size() < lanes) g_fibers.push_back(std::make_unique<Fiber>());
  race::BeginLaunch();
  try {
    for (const uint64_t number : BlockOrder(blocks)) {
      StartBlock(config, lanes, number);
      RunLanes();
    }
  } catch (const std::exception& error) {
    if (g_broken_rules == broken_before) ReportViolation("exception", "%s", error.what());
  }
  race::SwitchToHost();
  CloseShared();
  g_lane = nullptr;
  g_busy = false;
  return g_broken_rules == broken_before ? cudaSuccess : cudaErrorLaunchFailure;
}

unsigned char* DynamicShared() { return g_block.shared; }
size_t DynamicSharedBytes() { return g_block.shared_bytes; }
bool InDynamicShared(const void* address, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(address);
  return p >= g_block.shared && p + bytes <= g_block.shared + g_block.shared_bytes;
}

void* SharedVariable(const void* key, size_t bytes, size_t alignment) {
  for (int i = 0; i < g_block.num_variables; ++i) {
    if (g_block.variables[i].key == key) return g_block.variables[i].data;
  }
  if (g_block.num_variables == static_cast<int>(g_block.variables.size())) {
    throw std::runtime_error("more static shared variables than the emulator holds");
  }
  unsigned char* data = AllocateShared(bytes, alignment);
  g_block.variables[g_block.num_variables++] = {key, data};
  return data;
}

int LaneId() { return g_lane->in_warp; }
int WarpId() { return g_lane->index / 32; }

void SpinPause(Site site) {
  Block& block = g_block;
  g_lane->site = site;
  if (block.progress_seen != block.progress) block.progress_seen = block.progress, block.spins = 0;
  if (++block.spins > 2'000'000) {
    ReportViolation("livelock", "lanes spin at %s:%d and nothing else moves", site.file_name(),
                    static_cast<int>(site.line()));
    throw std::runtime_error("livelock");
  }
  // To the bottom of the stack: everybody else goes first.
  g_lane->state = LaneState::kReady;
  block.ready.push_back(0);
  for (size_t i = block.ready.size() - 1; i > 0; --i) block.ready[i] = block.ready[i - 1];
  block.ready[0] = g_lane->index;
  Yield();
}

void ThreadFence() {
  if (g_lane == nullptr) return;
  race::Fence(g_lane->atomics.data(), g_lane->num_atomics);
  g_lane->num_atomics = 0;
}

void BeforeAtomic(const volatile void* address) {
  if (g_lane == nullptr) return;
  MaybeYield();
  ++g_block.progress;
  race::AtomicRelease(address);
}

void AfterAtomic(const volatile void* address) {
  if (g_lane == nullptr) return;
  Lane& lane = *g_lane;
  if (lane.num_atomics < static_cast<int>(lane.atomics.size())) lane.atomics[lane.num_atomics++] = address;
}

}  // namespace core
}  // namespace quire::simt
