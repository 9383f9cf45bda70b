#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/forward_batch.h"
#include "model/kv_cache.h"

namespace quire {

// What the integrity mode does to the memory of KV blocks: finds blocks that changed after they became findable, and
// fills freed ones with NaN, so that whoever reads them gets bad logits instead of another request's text.
//
// With a shadow it also keeps a second copy of all blocks, those of the host too, and proves after each step that
// nothing but the step's own slots was written: for tests, it costs the pool's size and a pass over it each step.
//
// Thread rule: one thread, the runner's. The memory is the host's.
class KvIntegrity {
 public:
  // `kv` outlives it. `check_host_copies`: keep a checksum of what goes to the host tier, verify what comes back.
  explicit KvIntegrity(const KvCache* kv, bool with_shadow = false, bool check_host_copies = false);

  // Before the block copies of a step: keeps the checksums of `checksums`, then compares `verify`. kDataLoss naming the
  // block that is not what it was. Block ids are in range, token counts in [0, block size].
  absl::Status BeforeCopies(const KvIntegrityWork& work);

  // The block copies of a step, KvCache::CopyBlocks. kDataLoss naming the host block that is not what it was.
  absl::Status CopyBlocks(Ops& ops, absl::Span<const BlockCopyIds> copies);

  // After them: poisons.
  void AfterCopies(const ForwardBatch& batch);

  // After the step. kDataLoss naming the first block of which more has changed than the slots of `batch`. OK without a
  // shadow.
  absl::Status AfterStep(const ForwardBatch& batch);

 private:
  struct Sealed {
    int32_t num_tokens = 0;
    uint64_t checksum = 0;
  };
  uint64_t Checksum(int32_t block, int32_t num_tokens) const;
  uint64_t HostChecksum(int32_t block) const;
  // The blocks of one array, shadow or memory.
  const std::byte* Block(size_t array, int32_t block) const;
  std::byte* ShadowBlock(size_t array, int32_t block);
  void FollowSlot(int32_t slot);

  const KvCache& kv_;
  std::vector<Sealed> sealed_;                  // by block
  std::vector<uint64_t> host_checksums_;        // by host block; empty: not kept
  std::vector<std::vector<std::byte>> shadow_;  // of each array of the cache; empty: none
};

}  // namespace quire
