#include "model/kv_integrity.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "kernels/base/kv_layout.h"
#include "kernels/base/status_macros.h"
#include "xxhash.h"

namespace quire {
namespace {

constexpr int kPoison = 0xff;  // NaN in each floating-point type

// Calls body(offset, bytes) for what `num_tokens` tokens of a block hold from first_token on: K and V of each head, and
// their scales where the cache has them.
template <typename F>
void ForRuns(const PagedKvView& view, int32_t first_token, int32_t num_tokens, F body) {
  const KvRunLayout layout = MakeKvRunLayout(view.dtype, view.block_size, view.head_dim);
  for (int64_t run = 0; run < view.num_kv_heads * layout.bytes(); run += layout.bytes()) {
    for (const int64_t row : {layout.k_row(first_token), layout.v_row(first_token)}) {
      body(run + row, num_tokens * layout.row_bytes);
    }
    if (layout.scale_bytes == 0) continue;
    for (const int64_t scale : {layout.k_scale(first_token), layout.v_scale(first_token)}) {
      body(run + scale, num_tokens * layout.scale_bytes);
    }
  }
}

}  // namespace

KvIntegrity::KvIntegrity(const KvCache* kv, bool with_shadow, bool check_host_copies)
    : kv_(*kv), sealed_(kv->num_blocks()), host_checksums_(check_host_copies ? kv->num_host_blocks() : 0) {
  if (!with_shadow) return;
  for (const PagedKvView& view : kv_.arrays()) {
    const auto* data = static_cast<const std::byte*>(view.data);
    shadow_.emplace_back(data, data + view.bytes_per_block() * view.num_blocks);
    shadow_.back().resize(view.bytes_per_block() * (int64_t{view.num_blocks} + kv_.num_host_blocks()));
  }
}

// The blocks of all arrays stand one after the other there.
uint64_t KvIntegrity::HostChecksum(int32_t block) const {
  const HostKvView host = kv_.host(0);
  const std::byte* const data = static_cast<const std::byte*>(host.data) + (block - kv_.num_blocks()) * host.stride;
  return XXH3_64bits(data, host.stride);
}

absl::Status KvIntegrity::CopyBlocks(Ops& ops, absl::Span<const BlockCopyIds> copies) {
  if (host_checksums_.empty()) return kv_.CopyBlocks(ops, copies);
  // One by one: a host block may be filled, read and filled again in one list.
  for (const BlockCopyIds& copy : copies) {
    if (copy.src >= kv_.num_blocks() && HostChecksum(copy.src) != host_checksums_[copy.src - kv_.num_blocks()]) {
      return absl::DataLossError(
          absl::StrFormat("host KV block %d changed since it was filled", copy.src - kv_.num_blocks()));
    }
    QUIRE_RETURN_IF_ERROR(kv_.CopyBlocks(ops, {&copy, 1}));
    if (copy.dst >= kv_.num_blocks()) host_checksums_[copy.dst - kv_.num_blocks()] = HostChecksum(copy.dst);
  }
  return absl::OkStatus();
}

const std::byte* KvIntegrity::Block(size_t array, int32_t block) const {
  const PagedKvView& view = kv_.arrays()[array];
  return static_cast<const std::byte*>(view.data) + view.bytes_per_block() * block;
}

std::byte* KvIntegrity::ShadowBlock(size_t array, int32_t block) {
  return shadow_[array].data() + kv_.arrays()[array].bytes_per_block() * block;
}

uint64_t KvIntegrity::Checksum(int32_t block, int32_t num_tokens) const {
  uint64_t checksum = 0;
  for (size_t array = 0; array < kv_.arrays().size(); ++array) {
    const std::byte* const data = Block(array, block);
    ForRuns(kv_.arrays()[array], 0, num_tokens,
            [&](int64_t offset, int64_t bytes) { checksum = XXH3_64bits_withSeed(data + offset, bytes, checksum); });
  }
  return checksum;
}

absl::Status KvIntegrity::BeforeCopies(const KvIntegrityWork& work) {
  for (const KvIntegrityWork::Item& item : work.checksums) {
    sealed_[item.block] = {item.num_tokens, Checksum(item.block, item.num_tokens)};
  }
  for (const KvIntegrityWork::Item& item : work.verify) {
    const Sealed& sealed = sealed_[item.block];
    if (sealed.num_tokens == item.num_tokens && sealed.checksum == Checksum(item.block, item.num_tokens)) continue;
    return absl::DataLossError(
        absl::StrFormat("KV block %d changed after it became findable (%d tokens found, %d sealed)", item.block,
                        item.num_tokens, sealed.num_tokens));
  }
  return absl::OkStatus();
}

void KvIntegrity::AfterCopies(const ForwardBatch& batch) {
  for (const int32_t block : batch.integrity.poison) {
    for (const PagedKvView& view : kv_.arrays()) {
      std::memset(static_cast<std::byte*>(view.data) + view.bytes_per_block() * block, kPoison, view.bytes_per_block());
    }
  }
  for (size_t array = 0; array < shadow_.size(); ++array) {
    const int64_t bytes = kv_.arrays()[array].bytes_per_block();
    for (const BlockCopyIds& copy : batch.block_copies) {
      std::memcpy(ShadowBlock(array, copy.dst), ShadowBlock(array, copy.src), bytes);
    }
    for (const int32_t block : batch.integrity.poison) std::memset(ShadowBlock(array, block), kPoison, bytes);
  }
}

void KvIntegrity::FollowSlot(int32_t slot) {
  const int32_t block = slot / kv_.block_size(), offset = slot % kv_.block_size();
  for (size_t array = 0; array < shadow_.size(); ++array) {
    ForRuns(kv_.arrays()[array], offset, 1, [&](int64_t at, int64_t bytes) {
      std::memcpy(ShadowBlock(array, block) + at, Block(array, block) + at, bytes);
    });
  }
}

absl::Status KvIntegrity::AfterStep(const ForwardBatch& batch) {
  if (shadow_.empty()) return absl::OkStatus();
  for (int32_t group = 0; group < batch.num_groups(); ++group) {
    for (const int32_t slot : batch.group(group).slot_mapping) FollowSlot(slot);
  }
  for (size_t array = 0; array < shadow_.size(); ++array) {
    for (int32_t block = 0; block < kv_.num_blocks(); ++block) {
      if (std::memcmp(Block(array, block), ShadowBlock(array, block), kv_.arrays()[array].bytes_per_block()) == 0) {
        continue;
      }
      return absl::DataLossError(
          absl::StrFormat("the step changed KV block %d outside of its own slots (array %d)", block, array));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
