#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/layer_groups.h"

namespace quire {

// Bytes of a block: K and V of `block_size` tokens on the layers of one group, padding included.
int64_t KvBytesPerBlock(const ModelConfig& config, const LayerGroups& groups, int32_t block_size, DType dtype);

// One pool of KV blocks for all layer groups, the null block included. Owns the memory; blocks are numbers to everyone
// else. The backend must outlive it.
//
// The memory is one array of blocks for each place of a layer within its group: the k-th layers of all groups share the
// k-th array, where each uses the blocks that its group holds.
class KvCache {
 public:
  // kInvalidArgument for a block size or count out of range, kResourceExhausted.
  // `num_host_blocks`: of the host tier, numbered from num_blocks on; their memory is the host's, and only copies reach
  // them.
  static absl::StatusOr<KvCache> Create(Backend& backend, const ModelConfig& config, const LayerGroups& groups,
                                        int32_t num_blocks, int32_t block_size, DType dtype,
                                        int32_t num_host_blocks = 0);

  const PagedKvView& layer(int32_t index) const { return arrays_[place_[index]]; }
  const std::vector<PagedKvView>& arrays() const { return arrays_; }
  // Of one array: each host block holds its blocks of all arrays one after the other.
  HostKvView host(size_t array) const;
  int32_t num_host_blocks() const { return num_host_blocks_; }

  // Copies blocks on all arrays, in order.
  absl::Status CopyBlocks(Ops& ops, absl::Span<const BlockCopyIds> copies) const;

  int32_t num_blocks() const { return static_cast<int32_t>(arrays_[0].num_blocks); }
  int32_t block_size() const { return arrays_[0].block_size; }
  // On all layers, as long as nothing slides out.
  int64_t bytes_per_token() const {
    return arrays_[0].bytes_per_block() / block_size() * static_cast<int64_t>(arrays_.size()) * num_groups_;
  }

 private:
  KvCache() = default;

  std::vector<Buffer> buffers_;  // of arrays_
  std::vector<PagedKvView> arrays_;
  std::vector<int32_t> place_;  // of each layer within its group
  int32_t num_groups_ = 0;
  Buffer host_buffer_;
  int32_t num_host_blocks_ = 0;
};

}  // namespace quire
