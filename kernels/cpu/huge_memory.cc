#include "kernels/cpu/huge_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_format.h"

namespace quire {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

void Unmap(void* data, int64_t bytes) { munmap(data, static_cast<size_t>(RoundUp(bytes, kHugePage))); }
void Free(void* data, int64_t) { std::free(data); }

// Maps one huge page more than needed and gives the unaligned ends back. Null if the system refuses.
void* MapAligned(int64_t bytes) {
  const int64_t wanted = bytes + kHugePage;
  void* mapped = mmap(nullptr, static_cast<size_t>(wanted), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(mapped);
  const int64_t head = RoundUp(reinterpret_cast<intptr_t>(begin), kHugePage) - reinterpret_cast<intptr_t>(begin);
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  if (head < kHugePage) munmap(begin + head + bytes, static_cast<size_t>(kHugePage - head));
  madvise(begin + head, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // advice: refusal changes speed only
  return begin + head;
}

}  // namespace

absl::StatusOr<Buffer> AllocateHugeMemory(int64_t bytes) {
  constexpr int64_t kMax = int64_t{1} << 46;  // beyond any machine: keeps the sums below from overflowing
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrFormat("memory: %d bytes is negative", bytes));
  void* data = nullptr;
  if (bytes >= kHugePage) {
    if (bytes <= kMax) data = MapAligned(RoundUp(bytes, kHugePage));
  } else {
    const int64_t rounded = bytes == 0 ? 64 : RoundUp(bytes, 64);
    data = std::aligned_alloc(64, static_cast<size_t>(rounded));
    if (data != nullptr) std::memset(data, 0, static_cast<size_t>(rounded));
  }
  if (data == nullptr)
    return absl::ResourceExhaustedError(absl::StrFormat("cannot allocate %d bytes of memory", bytes));
  return Buffer(data, bytes, bytes >= kHugePage ? &Unmap : &Free);
}

}  // namespace quire
