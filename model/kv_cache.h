#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "model/config.h"

namespace quire {

// Bytes of K and V of `block_size` tokens on all layers.
int64_t KvBytesPerBlock(const ModelConfig& config, int32_t block_size, DType dtype);

// The KV blocks of all layers, the null block included. Owns the memory; blocks are numbers to everyone else. The
// backend must outlive it.
class KvCache {
 public:
  // kInvalidArgument for a block size or count out of range, kResourceExhausted.
  static absl::StatusOr<KvCache> Create(Backend& backend, const ModelConfig& config, int32_t num_blocks,
                                        int32_t block_size, DType dtype);

  const PagedKvView& layer(int32_t index) const { return views_[index]; }
  int32_t num_blocks() const { return static_cast<int32_t>(views_[0].num_blocks); }
  int32_t block_size() const { return views_[0].block_size; }
  int64_t bytes_per_token() const;

 private:
  KvCache() = default;

  std::vector<Buffer> buffers_;  // one a layer
  std::vector<PagedKvView> views_;
};

}  // namespace quire
