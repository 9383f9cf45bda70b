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

// Which unused cached block goes next. Knows entries of the prefix cache, which keep their number wherever their
// contents stand, and of each whether it stands on the host.
//
// Only leaves can go: unused blocks without unused ones behind them. So tails go before heads, whatever they are worth,
// and nothing that is cached hangs in the air. A block may leave the device for the host, or for good, when no unused
// one behind it is on the device; the host, when there is none at all. Among leaves: the lowest retention priority,
// then those whose ttl has passed, then by policy, then the longest unused. With kCost the least score goes:
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
  // `num_blocks` of the device, the null block included, to which pins are limited, whatever stands on the host.
  EvictionOrder(int32_t num_blocks, const EvictionOptions& options, int32_t num_host_blocks = 0);

  EvictionOrder(const EvictionOrder&) = delete;
  EvictionOrder& operator=(const EvictionOrder&) = delete;

  // A block in use becomes findable. `parent`: the entry before it, or kNoEntry. `position`: its first token's.
  void Add(EntryId entry, EntryId parent, int32_t position, int32_t tenant, const RetentionLevel& level);
  // It is findable no longer. No unused block may stand behind it.
  void Remove(EntryId entry);

  // A findable block lost its last holder, or got its first.
  void SetUnused(EntryId entry);
  void SetUsed(EntryId entry);

  // The contents have moved from the device to the host, or back. New entries are on the device.
  void SetOnHost(EntryId entry, bool on_host);
  // It is not worth a place on the host, until it is used again.
  void KeepOffHost(EntryId entry) { records_[Index(entry)].off_host = true; }

  // A request has used it: it counts for the score, its ttl begins again, and `level` replaces a weaker one.
  void CountHit(EntryId entry, const RetentionLevel& level);
  // Somebody is going to use it: as if it had been used just now.
  void Touch(EntryId entry);

  // Ends what has expired. `now` never decreases.
  void AdvanceTime(absl::Time now);

  // What should leave the device, kNoEntry if nothing is unused there. `Evicted` tells that it goes because room is
  // needed.
  EntryId Next() const { return EntryId{order_.First()}; }
  void Evicted(EntryId entry);
  // What should leave the host for it, kNoEntry if nothing can. Whether the entry, which is about to leave the device,
  // goes to the host rather than this one staying there.
  EntryId NextOnHost() const { return EntryId{host_order_.First()}; }
  bool MayReplace(EntryId entry, EntryId on_host) const;
  bool IsKeptOffHost(EntryId entry) const { return records_[Index(entry)].off_host; }

  // At most `quota` blocks of `tenant` (>= 1) may be findable; -1: no limit. Whoever adds blocks sees to it.
  void SetQuota(int32_t tenant, int32_t quota);
  int32_t Excess(int32_t tenant) const;  // by how many blocks one more would exceed the quota; <= 0: it would not
  EntryId NextOf(int32_t tenant) const;  // of a tenant with a quota: what should go, on the host first

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
  Info info(EntryId entry) const;
  bool is_unused(EntryId entry) const { return records_[Index(entry)].unused; }
  bool is_on_host(EntryId entry) const { return records_[Index(entry)].on_host; }

  // kInternal naming the first broken invariant. O(blocks).
  absl::Status CheckInvariants() const;

 private:
  struct Record {
    int64_t score = 0;
    uint64_t last_use = 0;
    int32_t parent = 0;
    int32_t unused_children = 0, unused_device_children = 0;
    int32_t position = 0;
    int32_t hits = 0;
    int32_t tenant = 0;
    int16_t priority = kDefaultRetention;
    bool findable = false, unused = false, expired = false;
    bool on_host = false, off_host = false;
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

  static int32_t Index(EntryId entry) { return static_cast<int32_t>(entry); }
  bool HasQuota(int32_t tenant) const {
    return tenant < static_cast<int32_t>(quotas_.size()) && quotas_[tenant].limit >= 0;
  }
  void Settle(int32_t i);
  void Unline(int32_t i);  // from all orders
  void CountUnusedChild(const Record& child, int32_t sign);
  void Stamp(Record& record);
  void SetLevel(int32_t i, const RetentionLevel& level);

  const EvictionPolicy policy_;
  const int32_t attention_equal_tokens_;
  const int32_t max_pinned_;
  const bool has_host_;
  Records records_;
  Treap<ByValue> order_;       // leaves on the device
  Treap<ByValue> host_order_;  // leaves on the host
  Treap<ByTenant> by_tenant_;  // of tenants with a quota: those without anything unused behind them
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
