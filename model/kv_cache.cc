#include "model/kv_cache.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status_macros.h"

namespace quire {

int64_t KvBytesPerBlock(const ModelConfig& config, const LayerGroups& groups, int32_t block_size, DType dtype) {
  return int64_t{2} * block_size * config.num_kv_heads * KvRowBytes(dtype, config.head_dim) * groups.layers_per_block;
}

absl::StatusOr<KvCache> KvCache::Create(Backend& backend, const ModelConfig& config, const LayerGroups& groups,
                                        int32_t num_blocks, int32_t block_size, DType dtype, int32_t num_host_blocks) {
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
  cache.num_groups_ = groups.size();
  cache.place_.resize(config.num_layers);
  for (const LayerGroup& group : groups.groups) {
    for (size_t i = 0; i < group.layers.size(); ++i) cache.place_[group.layers[i]] = static_cast<int32_t>(i);
  }
  for (int32_t place = 0; place < groups.layers_per_block; ++place) {
    PagedKvView view;
    view.dtype = dtype;
    view.num_blocks = num_blocks;
    view.block_size = block_size;
    view.num_kv_heads = config.num_kv_heads;
    view.head_dim = config.head_dim;
    QUIRE_ASSIGN_OR_RETURN(Buffer buffer, backend.Allocate(view.bytes_per_block() * num_blocks));
    view.data = buffer.data();
    cache.buffers_.push_back(std::move(buffer));
    cache.arrays_.push_back(view);
  }
  if (num_host_blocks < 0 || num_host_blocks > max_blocks - num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_host_blocks is %d, allowed is 0 to %d beside %d blocks of %d", num_host_blocks,
                        max_blocks - num_blocks, num_blocks, block_size));
  }
  cache.num_host_blocks_ = num_host_blocks;
  if (num_host_blocks > 0) {
    QUIRE_ASSIGN_OR_RETURN(cache.host_buffer_, backend.AllocateHost(cache.host(0).stride * num_host_blocks));
  }
  return cache;
}

HostKvView KvCache::host(size_t array) const {
  const int64_t bytes = arrays_[0].bytes_per_block();  // of all arrays
  HostKvView view;
  view.num_blocks = num_host_blocks_;
  view.stride = bytes * static_cast<int64_t>(arrays_.size());
  if (num_host_blocks_ > 0) view.data = host_buffer_.as<std::byte>() + bytes * static_cast<int64_t>(array);
  return view;
}

absl::Status KvCache::CopyBlocks(Ops& ops, absl::Span<const BlockCopyIds> copies) const {
  if (copies.empty()) return absl::OkStatus();
  for (size_t array = 0; array < arrays_.size(); ++array) {
    QUIRE_RETURN_IF_ERROR(ops.CopyBlocks({.copies = copies, .kv = arrays_[array], .host = host(array)}));
  }
  return absl::OkStatus();
}

}  // namespace quire
