// cp.async and its groups.
#include <cstring>
#include <stdexcept>

#include "tests/simt/block.h"
#include "tests/simt/race.h"

namespace quire::simt {
namespace {

void Land(const AsyncCopy& copy) {
  race::Access(copy.source, static_cast<size_t>(copy.source_bytes), false, false, __builtin_return_address(0));
  race::Access(copy.destination, static_cast<size_t>(copy.bytes), true, false, __builtin_return_address(0));
  std::memcpy(copy.destination, copy.source, static_cast<size_t>(copy.source_bytes));
  std::memset(copy.destination + copy.source_bytes, 0, static_cast<size_t>(copy.bytes - copy.source_bytes));
}

}  // namespace

namespace core {

[[gnu::noinline]] void CopyAsync(void* destination, const void* source, int bytes, int source_bytes) {
  ++stats().async_copies;
  const auto to = reinterpret_cast<uintptr_t>(destination), from = reinterpret_cast<uintptr_t>(source);
  if (((to | (source_bytes > 0 ? from : 0)) & static_cast<uintptr_t>(bytes - 1)) != 0) {
    ReportViolation("cp.async-misaligned", "to %p from %p, %d bytes", destination, source, bytes);
  }
  // It may land any time from here on.
  race::Access(destination, static_cast<size_t>(bytes), true, false, __builtin_return_address(0));
  std::memset(destination, 0xff, static_cast<size_t>(bytes));
  Lane& lane = *g_lane;
  if (lane.copies.size() == lane.copies.capacity()) throw std::runtime_error("over 512 cp.async in flight in a lane");
  lane.copies.push_back({static_cast<unsigned char*>(destination), static_cast<const unsigned char*>(source), bytes,
                         source_bytes, lane.copy_group});
}

void CommitCopies() { ++g_lane->copy_group; }

void WaitCopies(int groups_in_flight) {
  Lane& lane = *g_lane;
  if (groups_in_flight < 0) {
    CommitCopies();
    groups_in_flight = 0;
  }
  size_t kept = 0;
  for (const AsyncCopy& copy : lane.copies) {
    if (static_cast<int64_t>(copy.group) < static_cast<int64_t>(lane.copy_group) - groups_in_flight) {
      Land(copy);
    } else {
      lane.copies[kept++] = copy;
    }
  }
  lane.copies.resize(kept);
}

}  // namespace core
}  // namespace quire::simt
