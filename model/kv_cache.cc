#include "model/kv_cache.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"

namespace quire {

int64_t KvBytesPerBlock(const ModelConfig& config, int32_t block_size, DType dtype) {
  return int64_t{2} * block_size * config.num_kv_heads * config.head_dim * SizeOf(dtype) * config.num_layers;
}

absl::StatusOr<KvCache> KvCache::Create(Backend& backend, const ModelConfig& config, int32_t num_blocks,
                                        int32_t block_size, DType dtype) {
  if (block_size != 1 && block_size != 8 && block_size != 16 && block_size != 32 && block_size != 64) {
    return absl::InvalidArgumentError(absl::StrFormat("block_size is %d, allowed are 1, 8, 16, 32 and 64", block_size));
  }
  const int32_t max_blocks = std::numeric_limits<int32_t>::max() / block_size;  // slots are int32
  if (num_blocks < 2 || num_blocks > max_blocks) {
    return absl::InvalidArgumentError(absl::StrFormat("num_kv_blocks is %d, allowed is 2 to %d with blocks of %d",
                                                      num_blocks, max_blocks, block_size));
  }
  if (!backend.supports_kv_dtype(dtype)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s cannot keep a KV cache of %s", backend.Describe(), Name(dtype)));
  }
  KvCache cache;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    PagedKvView view;
    view.dtype = dtype;
    view.num_blocks = num_blocks;
    view.block_size = block_size;
    view.num_kv_heads = config.num_kv_heads;
    view.head_dim = config.head_dim;
    QUIRE_ASSIGN_OR_RETURN(Buffer buffer, backend.Allocate(view.bytes_per_block() * num_blocks));
    view.data = buffer.data();
    cache.buffers_.push_back(std::move(buffer));
    cache.views_.push_back(view);
  }
  return cache;
}

int64_t KvCache::bytes_per_token() const {
  return views_[0].bytes_per_block() / block_size() * static_cast<int64_t>(views_.size());
}

}  // namespace quire
