#include "tests/simt/race.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simt/device.h"

extern "C" char __executable_start;  // code addresses are kept relative to it

namespace quire::simt::race {
namespace {

// One access. Block 0: none.
struct Record {
  uint32_t code = 0;  // address of the instruction, relative
  uint32_t block = 0;
  uint32_t epoch = 0;
  uint32_t lane : 10 = 0, bytes : 4 = 0, clock : 17 = 0, atomic : 1 = 0;  // bytes: mask of the 4
};

// What is remembered of 4 bytes of memory.
struct Cell {
  std::array<Record, 2> writes;
  std::array<Record, 4> reads;
  uint32_t written_in_block = 0;
  uint8_t written_bytes = 0;
};
struct Page {
  std::array<Cell, 1024> cells;
};

// What a lane knows of a block: everything before `epoch`, and by lane the clocks within it.
struct Knowledge {
  uint32_t epoch = 0;
  std::vector<uint32_t> clocks;
};
using KnowledgeOfBlocks = std::map<uint32_t, Knowledge>;

struct LaneClock {
  uint32_t clock = 0, clocks_epoch = 0;
  std::vector<uint32_t> clocks;  // of the block's lanes, valid in clocks_epoch
  KnowledgeOfBlocks others;
  bool has_fenced = false;
  KnowledgeOfBlocks at_fence;
};

struct Range {
  const unsigned char *begin, *end;
  bool Contains(const volatile void* p) const { return p >= begin && p < end; }
};

std::unordered_map<uintptr_t, std::unique_ptr<Page>> g_pages;
std::array<std::pair<uintptr_t, Page*>, 64> g_page_cache;
std::vector<LaneClock> g_lanes;
unsigned g_num_lanes = 0, g_current = 0;
uint32_t g_block = 0, g_first_block = 1, g_epoch = 1;
Range g_stack{};
std::vector<Range> g_shared;
std::unordered_map<uintptr_t, KnowledgeOfBlocks> g_atomics;
std::set<std::pair<uint32_t, uint32_t>> g_reported;
bool g_on = false;
uint64_t g_accesses = 0;

// The detector's own accesses do not count.
class Off {
 public:
  Off() { g_on = false; }
  ~Off() { g_on = was_; }

 private:
  const bool was_ = g_on;
};

// "file.cuh:12 < caller.cuh:34".
std::string Where(uint32_t code) {
  char path[400];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[std::max<ssize_t>(length, 0)] = 0;
  char command[500], line[600];
  std::snprintf(command, sizeof(command), "addr2line -i -e %s 0x%x 2>/dev/null", path, code - 1);
  std::string result;
  if (FILE* pipe = popen(command, "r")) {
    for (int i = 0; i < 3 && std::fgets(line, sizeof(line), pipe) != nullptr; ++i) {
      std::string place = line;
      place = place.substr(place.rfind('/') + 1);
      while (!place.empty() && place.back() == '\n') place.pop_back();
      result += (result.empty() ? "" : " < ") + place;
    }
    pclose(pipe);
  }
  return result;
}

void MergeClocks(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void Merge(KnowledgeOfBlocks& into, const KnowledgeOfBlocks& from) {
  for (const auto& [block, knowledge] : from) {
    if (block < g_first_block) continue;
    Knowledge& known = into[block];
    if (known.epoch < knowledge.epoch) {
      known = knowledge;
    } else if (known.epoch == knowledge.epoch) {
      MergeClocks(known.clocks, knowledge.clocks);
    }
  }
}

LaneClock& Current() {
  LaneClock& lane = g_lanes[g_current];
  if (lane.clocks_epoch != g_epoch) {
    lane.clocks.assign(g_num_lanes, 0);
    lane.clocks_epoch = g_epoch;
    lane.clock = 0;
  }
  return lane;
}

// True if the access came before what the current lane does now.
bool IsOrdered(const Record& record) {
  if (record.block < g_first_block) return true;
  const LaneClock& lane = g_lanes[g_current];
  if (record.block == g_block) {
    if (record.epoch < g_epoch || record.lane == g_current) return true;
    return lane.clocks_epoch == g_epoch && lane.clocks[record.lane] > record.clock;
  }
  const auto it = lane.others.find(record.block);
  if (it == lane.others.end()) return false;
  if (it->second.epoch != record.epoch) return it->second.epoch > record.epoch;
  return record.lane < it->second.clocks.size() && it->second.clocks[record.lane] > record.clock;
}

bool InShared(const volatile void* address) {
  for (const Range& range : g_shared) {
    if (range.Contains(address)) return true;
  }
  return false;
}

Page& PageOf(uintptr_t number) {
  auto& [cached, page] = g_page_cache[number % g_page_cache.size()];
  if (page != nullptr && cached == number) return *page;
  std::unique_ptr<Page>& owned = g_pages[number];
  if (owned == nullptr) owned = std::make_unique<Page>();
  cached = number;
  page = owned.get();
  return *page;
}

Cell& CellOf(uintptr_t word) { return PageOf(word >> 12).cells[(word >> 2) & 1023]; }

[[gnu::noinline]] void ReportConflict(const char* kind, const Record& old, uintptr_t word, uint32_t code) {
  const Off off;
  if (!g_reported.insert({old.code, code}).second) return;
  const char* scope = old.block != g_block              ? "different blocks (needs fence and atomic, or another launch)"
                      : old.lane / 32 == g_current / 32 ? "one warp (needs __syncwarp)"
                                                        : "different warps (needs __syncthreads)";
  ReportViolation("race", "%s on %s memory between %s: now lane %u at %s; before lane %u at %s", kind,
                  InShared(reinterpret_cast<const void*>(word)) ? "shared" : "global", scope, g_current,
                  Where(code).c_str(), old.lane, Where(old.code).c_str());
}

[[gnu::noinline]] void ReportUninitialised(uint32_t code) {
  const Off off;
  if (!g_reported.insert({~0u, code}).second) return;
  ReportViolation("uninitialised-shared", "lane %u reads shared memory that nobody wrote in this block at %s",
                  g_current, Where(code).c_str());
}

bool Conflicts(const Record& old, const Record& now) {
  return old.block != 0 && (old.bytes & now.bytes) != 0 && !(old.atomic && now.atomic) && !IsOrdered(old);
}

void RememberWrite(Cell& cell, const Record& record, bool shared) {
  if (cell.writes[0].block != 0 && (cell.writes[0].bytes & ~record.bytes) != 0 && cell.writes[0].lane != g_current) {
    cell.writes[1] = cell.writes[0];
  }
  cell.writes[0] = record;
  for (Record& read : cell.reads) {
    if ((read.bytes & ~record.bytes) == 0) read.block = 0;
  }
  if (shared) {
    if (cell.written_in_block != g_block) cell.written_in_block = g_block, cell.written_bytes = 0;
    cell.written_bytes |= static_cast<uint8_t>(record.bytes);
  }
}

// Keeps readers of different warps; a lane replaces itself, and what is ordered for everybody goes first.
void RememberRead(Cell& cell, const Record& record) {
  auto& reads = cell.reads;
  const auto replaceable = [](const Record& old) {
    return old.block == 0 || old.block < g_first_block ||
           (old.block == g_block && (old.lane == g_current || old.epoch < g_epoch));
  };
  auto slot = std::find_if(reads.begin(), reads.end(), replaceable);
  for (auto i = reads.begin(); i != reads.end() && slot == reads.end(); ++i) {
    for (auto j = reads.begin(); j != i && slot == reads.end(); ++j) {
      if (i->block == j->block && i->lane / 32 == j->lane / 32) slot = i;
    }
  }
  if (slot == reads.end()) slot = reads.begin() + static_cast<std::ptrdiff_t>(g_accesses % reads.size());
  *slot = record;
}

void AccessWord(uintptr_t word, unsigned bytes, bool write, bool atomic, uint32_t code, bool shared) {
  Cell& cell = CellOf(word);
  const LaneClock& lane = Current();
  const Record now{code, g_block, g_epoch, g_current, bytes, lane.clock & 0x1ffff, atomic};
  for (const Record& old : cell.writes) {
    if (Conflicts(old, now)) ReportConflict(write ? "write/write race" : "write/read race", old, word, code);
  }
  if (write) {
    for (const Record& old : cell.reads) {
      if (Conflicts(old, now)) ReportConflict("read/write race", old, word, code);
    }
    RememberWrite(cell, now, shared);
    return;
  }
  if (shared && (cell.written_in_block != g_block || (bytes & ~unsigned{cell.written_bytes}) != 0)) {
    ReportUninitialised(code);
  }
  RememberRead(cell, now);
}

}  // namespace

void Access(const volatile void* address, size_t bytes, bool write, bool atomic, void* return_address) {
  if (!g_on || g_stack.Contains(address)) return;
  ++g_accesses;
  const auto code = static_cast<uint32_t>(static_cast<char*>(return_address) - &__executable_start);
  const bool shared = InShared(address);
  uintptr_t begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + bytes;
  while (begin < end) {
    const uintptr_t word = begin & ~uintptr_t{3}, word_end = std::min(word + 4, end);
    AccessWord(word, ((1u << (word_end - begin)) - 1) << (begin - word), write, atomic, code, shared);
    begin = word_end;
  }
}

void BeginLaunch() {
  g_first_block = g_block + 1;
  g_atomics.clear();
  g_reported.clear();
}

void BeginBlock(unsigned lanes) {
  ++g_block;
  g_epoch = 1;
  g_num_lanes = lanes;
  if (g_lanes.size() < lanes) g_lanes.resize(lanes);
  for (unsigned i = 0; i < lanes; ++i) {
    LaneClock& lane = g_lanes[i];
    lane.clock = lane.clocks_epoch = 0;
    lane.others.clear();
    lane.has_fenced = false;
    lane.at_fence.clear();
  }
  g_shared.clear();
}

void NewSharedMemory(const void* data, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  g_shared.push_back({begin, begin + bytes});
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) & ~uintptr_t{3};
  for (uintptr_t word = first; word < reinterpret_cast<uintptr_t>(begin) + bytes; word += 4) CellOf(word) = {};
}

void SwitchTo(unsigned lane, const void* stack_begin, const void* stack_end) {
  g_current = lane;
  g_stack = {static_cast<const unsigned char*>(stack_begin), static_cast<const unsigned char*>(stack_end)};
  g_on = true;
}

void SwitchToHost() { g_on = false; }

void BlockBarrier(unsigned lanes) {
  bool any = false;
  for (unsigned i = 0; i < lanes; ++i) any |= !g_lanes[i].others.empty();
  if (any) {
    KnowledgeOfBlocks all;
    for (unsigned i = 0; i < lanes; ++i) Merge(all, g_lanes[i].others);
    for (unsigned i = 0; i < lanes; ++i) g_lanes[i].others = all;
  }
  ++g_epoch;
}

void Join(const unsigned* lanes, int count) {
  std::vector<uint32_t> joined(g_num_lanes, 0);
  KnowledgeOfBlocks all;
  const unsigned current = g_current;
  for (int i = 0; i < count; ++i) {
    g_current = lanes[i];
    const LaneClock& lane = Current();
    MergeClocks(joined, lane.clocks);
    joined[lanes[i]] = std::max(joined[lanes[i]], lane.clock + 1);
    Merge(all, lane.others);
  }
  g_current = current;
  for (int i = 0; i < count; ++i) {
    LaneClock& lane = g_lanes[lanes[i]];
    lane.clocks = joined;
    ++lane.clock;
    if (!all.empty()) lane.others = all;
  }
}

void Fence(const volatile void* const* acquired, int count) {
  LaneClock& lane = Current();
  for (int i = 0; i < count; ++i) {
    const auto it = g_atomics.find(reinterpret_cast<uintptr_t>(acquired[i]));
    if (it == g_atomics.end()) continue;
    Merge(lane.others, it->second);
    const auto own = it->second.find(g_block);
    if (own != it->second.end() && own->second.epoch == g_epoch) MergeClocks(lane.clocks, own->second.clocks);
  }
  lane.at_fence = lane.others;
  Knowledge& own = lane.at_fence[g_block];
  own.epoch = g_epoch;
  own.clocks = lane.clocks;
  own.clocks[g_current] = lane.clock + 1;
  lane.has_fenced = true;
  ++lane.clock;
}

void AtomicRelease(const volatile void* address) {
  const LaneClock& lane = g_lanes[g_current];
  if (lane.has_fenced) Merge(g_atomics[reinterpret_cast<uintptr_t>(address)], lane.at_fence);
}

}  // namespace quire::simt::race
