// What sm_90 adds: mbarrier, TMA tile loads, wgmma. After the PTX ISA's text; no hardware has confirmed it.
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/simt/block.h"
#include "tests/simt/race.h"

namespace quire::simt {
namespace {

// The word of an mbarrier.
struct BarrierWord {
  uint64_t phase : 1, pending : 15, count : 15, bytes : 33;  // bytes: still to come
};

BarrierWord Read(const uint64_t* barrier) {
  BarrierWord word;
  std::memcpy(&word, barrier, sizeof(word));
  return word;
}

// Ends the phase if nothing is awaited any more.
void Write(uint64_t* barrier, BarrierWord word) {
  if (word.pending == 0 && word.bytes == 0) {
    word.phase ^= 1;
    word.pending = word.count;
    ++g_block.progress;
  }
  std::memcpy(barrier, &word, sizeof(word));
}

bool CheckAddress(uint64_t* barrier) {
  if (reinterpret_cast<uintptr_t>(barrier) % 8 == 0 && core::InDynamicShared(barrier, 8)) return true;
  ReportViolation("mbarrier-address", "%p is not an 8-byte aligned shared address", static_cast<void*>(barrier));
  return false;
}

struct Map {
  uint64_t magic = 0;
  const void* base = nullptr;
  uint64_t rows = 0, cols = 0;
  uint32_t box_rows = 0;
};
constexpr uint64_t kMagic = 0x7a9;
constexpr int kRowBytes = 128;  // a box is 64 values of 16 bits wide

struct TileLoad {
  uint64_t* barrier;
  unsigned char* destination;
  Map map;
  int x, y;
};
std::vector<TileLoad> g_loads;  // issued, not yet landed

uint16_t MapElement(const Map& map, int64_t row, int64_t col) {
  uint16_t value = 0;
  if (row >= 0 && col >= 0 && static_cast<uint64_t>(row) < map.rows && static_cast<uint64_t>(col) < map.cols) {
    std::memcpy(&value, static_cast<const char*>(map.base) + (static_cast<uint64_t>(row) * map.cols + col) * 2, 2);
  }
  return value;
}

void LandTile(const TileLoad& load) {
  for (uint32_t row = 0; row < load.map.box_rows; ++row) {
    for (uint32_t col = 0; col < 64; ++col) {
      const uint16_t value = MapElement(load.map, load.y + int64_t{row}, load.x + int64_t{col});
      const uint32_t chunk = (col / 8) ^ (row % 8);
      std::memcpy(load.destination + row * kRowBytes + chunk * 16 + col % 8 * 2, &value, 2);
    }
  }
  BarrierWord word = Read(load.barrier);
  word.bytes -= load.map.box_rows * kRowBytes;
  Write(load.barrier, word);
}

// As late as a waiter can notice.
void LandLoadsOf(uint64_t* barrier) {
  for (size_t i = 0; i < g_loads.size();) {
    if (g_loads[i].barrier != barrier) {
      ++i;
      continue;
    }
    const TileLoad load = g_loads[i];
    g_loads.erase(g_loads.begin() + static_cast<std::ptrdiff_t>(i));
    LandTile(load);
  }
}

void ReleaseTo(const uint64_t* barrier) {
  race::Fence(nullptr, 0);
  race::AtomicRelease(barrier);
}

void AcquireFrom(const uint64_t* barrier) {
  const volatile void* address = barrier;
  race::Fence(&address, 1);
}

// One lane's accumulators while products are in flight.
struct Accumulator {
  const Lane* lane;
  float* registers;
  float values[32];
  int group;
};
std::vector<Accumulator> g_accumulators;
std::vector<int> g_groups;  // by lane: groups committed

int& GroupOfLane() {
  if (g_groups.size() <= g_lane->index) g_groups.resize(1024);
  return g_groups[g_lane->index];
}

// Element (row, k) of a K-major operand, 128-byte swizzle, through an ordinary load that the caller's sanitizers see.
float OperandElement(uint64_t descriptor, int row, int k) {
  const auto start = static_cast<unsigned>(descriptor & 0x3fff) * 16;
  const auto stride = static_cast<unsigned>((descriptor >> 32) & 0x3fff) * 16;
  unsigned offset = start + static_cast<unsigned>(row / 8) * stride + static_cast<unsigned>(row % 8) * kRowBytes +
                    static_cast<unsigned>(k) * 2;
  if ((descriptor >> 62) == 1) offset ^= ((offset >> 7) & 7) << 4;
  const unsigned char* address = core::DynamicShared() + offset;
  if (!core::InDynamicShared(address, 2)) {
    ReportViolation("wgmma-operand", "offset %u of %zu bytes of shared memory", offset, core::DynamicSharedBytes());
    return NAN;
  }
  race::Access(address, 2, false, false, __builtin_return_address(0));
  uint16_t half;
  std::memcpy(&half, address, 2);
  const uint32_t wide = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

}  // namespace

namespace core {

void MbarrierInit(uint64_t* barrier, unsigned count) {
  if (!CheckAddress(barrier)) return;
  race::Access(barrier, 8, true, true, __builtin_return_address(0));
  const BarrierWord word{0, count, count, 0};
  std::memcpy(barrier, &word, sizeof(word));
}

void MbarrierArrive(uint64_t* barrier, unsigned expected_bytes) {
  if (!CheckAddress(barrier)) return;
  ReleaseTo(barrier);
  BarrierWord word = Read(barrier);
  if (word.pending == 0) {
    ReportViolation("mbarrier-overflow", "more arrivals than the count in one phase");
    return;
  }
  word.pending -= 1;
  word.bytes += expected_bytes;
  Write(barrier, word);
}

bool MbarrierTest(uint64_t* barrier, unsigned parity) {
  if (!CheckAddress(barrier)) return true;
  if (Read(barrier).phase == parity) LandLoadsOf(barrier);
  if (Read(barrier).phase == parity) return false;
  AcquireFrom(barrier);
  return true;
}

void MbarrierWait(uint64_t* barrier, unsigned parity, Site site) {
  while (!MbarrierTest(barrier, parity)) SpinPause(site);
}

bool MakeTensorMap(void* map, const void* base, uint64_t rows, uint64_t cols, uint32_t box_rows) {
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0 || cols * 2 % 16 != 0) return false;  // as the driver does
  const Map made{kMagic, base, rows, cols, box_rows};
  std::memcpy(map, &made, sizeof(made));
  return true;
}

void TmaLoad2d(void* destination, const void* map, uint64_t* barrier, int x, int y) {
  Map given;
  std::memcpy(&given, map, sizeof(given));
  if (given.magic != kMagic) {
    ReportViolation("tma-map", "not a tensor map");
    return;
  }
  const size_t bytes = size_t{given.box_rows} * kRowBytes;
  if (!InDynamicShared(destination, bytes) || reinterpret_cast<uintptr_t>(destination) % 1024 != 0) {
    ReportViolation("tma-destination", "%p: outside shared memory or not a multiple of 1024", destination);
    return;
  }
  race::Access(destination, bytes, true, false, __builtin_return_address(0));
  ReleaseTo(barrier);  // whoever sees the bytes arrive comes after this
  std::memset(destination, 0xff, bytes);
  g_loads.push_back({barrier, static_cast<unsigned char*>(destination), given, x, y});
}

void WgmmaM64N64K16(float* d, uint64_t descriptor_a, uint64_t descriptor_b) {
  const int warp = WarpId() % 4, g = LaneId() / 4, t = LaneId() % 4;
  Accumulator* accumulator = nullptr;
  for (Accumulator& a : g_accumulators) {
    if (a.lane == g_lane && a.registers == d) accumulator = &a;
  }
  if (accumulator == nullptr) {
    accumulator = &g_accumulators.emplace_back(Accumulator{g_lane, d, {}, 0});
    for (int i = 0; i < 32; ++i) accumulator->values[i] = d[i], d[i] = NAN;
  }
  accumulator->group = GroupOfLane();
  for (int i = 0; i < 32; ++i) {
    const int row = 16 * warp + g + 8 * ((i >> 1) & 1), column = i / 4 * 8 + 2 * t + (i & 1);
    float sum = 0;
    for (int k = 0; k < 16; ++k) sum += OperandElement(descriptor_a, row, k) * OperandElement(descriptor_b, column, k);
    accumulator->values[i] += sum;
  }
}

void WgmmaCommit() { ++GroupOfLane(); }

void WgmmaWait(int groups_in_flight) {
  for (size_t i = 0; i < g_accumulators.size();) {
    Accumulator& a = g_accumulators[i];
    if (a.lane == g_lane && a.group < GroupOfLane() - groups_in_flight) {
      for (int k = 0; k < 32; ++k) a.registers[k] = a.values[k];
      g_accumulators.erase(g_accumulators.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

}  // namespace core

void ForgetHopperState() {
  g_loads.clear();
  g_accumulators.clear();
  g_groups.clear();
}

}  // namespace quire::simt
