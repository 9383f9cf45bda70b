#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/status_macros.h"

namespace quire::cuda {
namespace {

constexpr int64_t kAlignment = 256, kFirstChunk = int64_t{1} << 20;

}  // namespace

absl::StatusOr<const void*> Staging::UploadBytes(const void* data, int64_t bytes) {
  if (chunks_.empty() || chunks_.back().used + bytes > chunks_.back().device.bytes()) {
    const int64_t size = std::max({kFirstChunk, bytes, chunks_.empty() ? 0 : 2 * chunks_.back().device.bytes()});
    Chunk chunk;
    QUIRE_ASSIGN_OR_RETURN(void* pinned, AllocatePinned(size));
    chunk.pinned = Buffer(pinned, size, &FreePinned);
    QUIRE_ASSIGN_OR_RETURN(void* device, AllocateDevice(size));
    chunk.device = Buffer(device, size, &FreeDevice);
    chunks_.push_back(std::move(chunk));
  }
  Chunk& chunk = chunks_.back();
  unsigned char* pinned = chunk.pinned.as<unsigned char>() + chunk.used;
  unsigned char* device = chunk.device.as<unsigned char>() + chunk.used;
  chunk.used = std::min(chunk.device.bytes(), (chunk.used + bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (bytes > 0) {
    std::memcpy(pinned, data, static_cast<size_t>(bytes));
    QUIRE_RETURN_IF_ERROR(CopyAsync(device, pinned, bytes, stream_));
  }
  return device;
}

void Staging::Reset() {
  if (chunks_.size() > 1) chunks_.erase(chunks_.begin(), chunks_.end() - 1);
  if (!chunks_.empty()) chunks_.back().used = 0;
  known_.clear();
}

}  // namespace quire::cuda
