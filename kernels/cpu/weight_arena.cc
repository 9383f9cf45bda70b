#include "kernels/cpu/weight_arena.h"

#include <utility>

#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/huge_memory.h"

namespace quire {
namespace {

// Pages are backed when touched, so the unused end of a region costs address space only.
constexpr int64_t kRegionBytes = int64_t{64} << 20;
constexpr int64_t kAlignment = 64;

}  // namespace

absl::StatusOr<std::byte*> WeightArena::Allocate(int64_t bytes) {
  if (bytes + kReadAheadBytes > left_) {
    const bool own_region = bytes > kRegionBytes / 4;
    absl::StatusOr<Buffer> region = AllocateHugeMemory(own_region ? bytes + kReadAheadBytes : kRegionBytes);
    if (!region.ok()) return region.status();
    regions_.push_back(*std::move(region));
    std::byte* data = regions_.back().as<std::byte>();
    if (own_region) return data;
    next_ = data;
    left_ = kRegionBytes;
  }
  std::byte* data = next_;
  const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  next_ += taken;
  left_ -= taken;
  return data;
}

}  // namespace quire
