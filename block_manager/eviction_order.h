#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "block_manager/block.h"
#include "block_manager/retention.h"
#include "block_manager/treap.h"

namespace quire {

enum class EvictionPolicy : uint8_t {
  kCost,  // recompute cost x reuse likelihood against age, see EvictionOrder
  kLru,   // longest unused first
};

struct EvictionOptions {
  EvictionPolicy policy = EvictionPolicy::kCost;
  // The position at which attending to all earlier tokens costs as much as everything else of a token: a block that
  // deep counts twice. >= 1. About parameters / (2 x layers x hidden size).
  int32_t attention_equal_tokens = 16384;
  // At most this share of the pool is kept with a priority above the default at one time; what is asked for beyond
  // counts as default. 0 .. 1.
  double max_pinned_share = 0.5;
};

// Which unused cached block goes next.
//
// Only leaves can go: unused blocks without unused ones behind them. So tails go before heads, whatever they are worth,
// and nothing that is cached hangs in the air. Among leaves: the lowest retention priority, then those whose ttl has
// passed, then by policy, then the longest unused. With kCost the least score goes:
//
//   score = clock at the latest use + cost x (1 + min(hits, 15)),   cost = 1 + position / attention_equal_tokens
//
// and the clock rises to the score of each block that goes. So a block of little worth is outlived by the more new
// ones, the more others cost and were hit: GreedyDual (Cao and Irani, Cost-Aware WWW Proxy Caching Algorithms, 1997)
// with the frequencies of GDSF (Cherkasova, 1998); all blocks have one size.
//
// O(log blocks) an operation, nothing is allocated. Not thread-safe: the engine thread owns it.
class EvictionOrder {
 public:
  EvictionOrder(int32_t num_blocks, const EvictionOptions& options);

  EvictionOrder(const EvictionOrder&) = delete;
  EvictionOrder& operator=(const EvictionOrder&) = delete;

  // A block in use becomes findable. `parent`: the block before it, or kNullBlock. `position`: its first token's.
  void Add(BlockId block, BlockId parent, int32_t position, int32_t tenant, const RetentionLevel& level);
  // It is findable no longer. No unused block may stand behind it.
  void Remove(BlockId block);

  // A findable block lost its last holder, or got its first.
  void SetUnused(BlockId block);
  void SetUsed(BlockId block);

  // A request has used it: it counts for the score, its ttl begins again, and `level` replaces a weaker one.
  void CountHit(BlockId block, const RetentionLevel& level);
  // Somebody is going to use it: as if it had been used just now.
  void Touch(BlockId block);

  // Ends what has expired. `now` never decreases.
  void AdvanceTime(absl::Time now);

  // The block that should go, kNullBlock if none is unused. `Evicted` tells that it goes because room is needed.
  BlockId Next() const { return BlockId{order_.First()}; }
  void Evicted(BlockId block);

  // At most `quota` blocks of `tenant` (>= 1) may be findable; -1: no limit. Whoever adds blocks sees to it.
  void SetQuota(int32_t tenant, int32_t quota);
  int32_t Excess(int32_t tenant) const;  // by how many blocks one more would exceed the quota; <= 0: it would not
  BlockId NextOf(int32_t tenant) const;  // the block of a tenant with a quota that should go, as Next

  int32_t num_pinned() const { return num_pinned_; }  // blocks with a priority above the default
  int32_t max_pinned() const { return max_pinned_; }
  int64_t num_pins_refused() const { return num_pins_refused_; }

  // Of a findable block.
  struct Info {
    int32_t priority = 0;  // that holds now
    absl::Time expires;    // infinite future: never
    absl::Time last_used;  // when it was last added, hit or let go; to the latest AdvanceTime
    int32_t hits = 0;
    int32_t tenant = 0;
  };
  Info info(BlockId block) const;
  bool is_unused(BlockId block) const { return records_[Index(block)].unused; }

  // kInternal naming the first broken invariant. O(blocks).
  absl::Status CheckInvariants() const;

 private:
  struct Record {
    int64_t score = 0;
    uint64_t last_use = 0;
    int32_t parent = 0;
    int32_t unused_children = 0;
    int32_t position = 0;
    int32_t hits = 0;
    int32_t tenant = 0;
    int16_t priority = kDefaultRetention;
    bool findable = false, unused = false, expired = false;
    absl::Duration ttl;
    absl::Time expires, last_used;
  };
  using Records = std::vector<Record>;

  struct ByValue {
    const Records* records;
    bool operator()(int32_t a, int32_t b) const;
  };
  struct ByTenant {
    const Records* records;
    bool operator()(int32_t a, int32_t b) const;
  };
  struct ByExpiry {
    const Records* records;
    bool operator()(int32_t a, int32_t b) const;
  };

  static int32_t Index(BlockId block) { return static_cast<int32_t>(block); }
  bool HasQuota(int32_t tenant) const {
    return tenant < static_cast<int32_t>(quotas_.size()) && quotas_[tenant].limit >= 0;
  }
  void Line(int32_t i);    // a leaf takes its place
  void Unline(int32_t i);  // and leaves it
  void Stamp(Record& record);
  void SetLevel(int32_t i, const RetentionLevel& level);

  const EvictionPolicy policy_;
  const int32_t attention_equal_tokens_;
  const int32_t max_pinned_;
  Records records_;
  Treap<ByValue> order_;       // leaves
  Treap<ByTenant> by_tenant_;  // leaves of tenants with a quota
  Treap<ByExpiry> by_expiry_;  // findable blocks whose ttl runs
  struct Quota {
    int32_t limit = -1;
    int32_t findable = 0;
  };
  std::vector<Quota> quotas_;  // by tenant
  int64_t clock_ = 0;
  uint64_t next_use_ = 1;
  absl::Time now_ = absl::InfinitePast();
  int32_t num_pinned_ = 0;
  int64_t num_pins_refused_ = 0;
};

}  // namespace quire
