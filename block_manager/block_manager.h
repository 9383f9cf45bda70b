#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "block_manager/block.h"
#include "block_manager/block_manager_observer.h"
#include "block_manager/block_pool.h"
#include "block_manager/block_table.h"
#include "block_manager/eviction_order.h"
#include "block_manager/group_pages.h"
#include "block_manager/integrity.h"
#include "block_manager/kv_events.h"
#include "block_manager/miss_memory.h"
#include "block_manager/prefix_cache.h"
#include "block_manager/retention.h"
#include "block_manager/token_permutation.h"

namespace quire {

struct BlockManagerOptions {
  int32_t num_blocks = 0;  // the null block included; [2, 2^31 / block_size)
  int32_t block_size = 0;  // tokens, >= 1
  bool enable_prefix_cache = true;
  // A hit that ends inside a block, not the first, is used if it gives at least as many tokens of that block: the time
  // of one block copy over the time of computing one token, rounded up. In practice a copy is cheaper than any token.
  // >= 1; block_size switches such hits off.
  int32_t min_partial_tokens = 1;
  EvictionOptions eviction = {};
  int32_t num_events = 0;            // that KvEventLog keeps
  int32_t num_remembered = 1 << 14;  // evicted blocks whose misses can be explained, 40 bytes each
  bool integrity = false;            // collect IntegrityWork
  // With layer groups (group_pages.h): their windows, and the pages of the pool, the null page included. num_blocks
  // then counts logical blocks, of which there may be as many as one likes. Empty: one group without a window, where a
  // block is a page.
  std::vector<int32_t> group_windows = {};
  int32_t num_pages = 0;
  // Among entries behind one parent, and where two share equally much with a text, the order of these images decides.
  TokenPermutation token_order = {};
  // Blocks of the host tier, which take what is evicted from the device. With layer groups these are logical blocks
  // too, and the host has `num_host_pages` pages.
  int32_t num_host_blocks = 0;
  int32_t num_host_pages = 0;
  // The chain hash. Only tests give another one, to force collisions; MakeEngineRequest hashes with ChainHash.
  BlockHash (*chain_hash)(const BlockHash& parent, absl::Span<const int32_t> tokens) = &ChainHash;
};

// Contents of `src` that `dst` needs before the next step writes anything. With layer groups these are pages. Numbers
// from num_blocks (num_pages) on are of the host tier.
struct BlockCopy {
  BlockId src = kNullBlock;
  BlockId dst = kNullBlock;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

struct BlockStats {
  // free + cached + active = total, the null block not counted.
  int32_t total = 0, free = 0, cached = 0, active = 0;
  int64_t evictions = 0;  // cached blocks taken over so far
  // Findable blocks kept with a priority above the default, how many may be, and requests for more that were refused.
  int32_t pinned = 0, max_pinned = 0;
  int64_t pins_refused = 0;
  // The host tier: its blocks, those in use, and blocks copied to it and back so far; with layer groups, pages.
  int32_t host_total = 0, host_used = 0;
  int64_t copied_out = 0, copied_in = 0;
};

// Whether copies to and from the host are worth their time, as whoever measures it says.
struct HostUse {
  // So many evicted blocks go to the host until this is said again; others go nowhere.
  int64_t max_demotions = std::numeric_limits<int64_t>::max();
  bool fetch = true;  // a match goes on over blocks that are there
};

// Why a match ended where it did.
enum class MissReason : uint8_t {
  kNone,          // it did not: all that may be reused was found
  kCacheOff,      // the prefix cache is off
  kBypassed,      // the request does not read it
  kUnderMinimum,  // less than one block is wanted or found, or too few tokens to be worth a copy even if they were
                  // there
  kCopyNotWorth,  // found inside a block, but fewer tokens than min_partial_tokens; or on the host and not worth
                  // fetching
  kSlidOut,       // found, but a layer group has lost what its window holds at the end of it
  kEvicted,       // was there, and went at PrefixMatch::evicted_at
  kOtherRoot,     // the same tenant's tokens lie behind another salt, adapter or set of weights
  kNeverSeen,     // as far as is remembered
};

struct PrefixMatch {
  int32_t num_tokens = 0;      // that need not be computed
  int32_t partial_tokens = 0;  // of these: in a last block that others can see; Reserve copies it
  int32_t host_blocks = 0;     // that Reserve brings back from the host
  MissReason miss = MissReason::kNone;
  int32_t missed_block = 0;                      // the first that differs; means something if miss is not kNone
  absl::Time evicted_at = absl::InfinitePast();  // with kEvicted
};

// What a sequence's tokens are known by, and what the cache may do with them.
struct PrefixKeys {
  BlockHash root;                 // everything but tokens that K and V depend on, salt and tenant included
  std::vector<BlockHash> blocks;  // of leading full blocks
  int32_t tenant = 0;             // whose quota new blocks count for; 0: nobody's
  bool read = true, write = true;
  Retention retention = {};
};

// One chain of cached blocks, as far as it goes.
struct PrefixInfo {
  BlockHash root, key;     // key: of the last full block; of the root if there is none
  int32_t num_tokens = 0;  // from the first position on
  int32_t num_hits = 0;    // of the last block
  int32_t head_hits = 0;   // of the first
  int32_t priority = 0;    // of the last, as the others
  int32_t tenant = 0;
  bool in_use = false;
  bool on_host = false;  // the last block
  absl::Time last_used, expires;
};

// Hands out physical KV blocks to tables, shares equal prefixes between them, and never lets anyone write to a block
// that another table holds or that can be found. Ids only: it never sees memory, requests or sequences. Time is what
// AdvanceTime says.
//
// Life of a table: NewTable, then MatchPrefix while it is empty (or Fork), Reserve before each step for all tokens the
// step will have stored, Publish after the step has run, Seal at the end if what is stored is worth finding again,
// Clear or destruction after the last step that reads it.
//
// Copy-on-write is one rule: when the block that a table writes next is held by other tables or can be found, Reserve
// exchanges it for a copy. Hits inside a block, forks and sealed tails all rest on it.
//
// In steady state nothing here allocates. Not thread-safe: the engine thread owns it.
class BlockManager : private BlockPool::Cache {
 public:
  explicit BlockManager(const BlockManagerOptions& options);

  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;

  // --- Tables

  BlockTable NewTable() { return BlockTable(&pool_, pages_.get()); }

  // Fills an empty `table` with the cached blocks that hold the longest prefix of `tokens`, at most `max_tokens` of
  // them: full blocks, then perhaps one that is right only up to the token where the texts part. A hit has at least
  // block_size() tokens: many prompts begin with the same few, which are computed faster than they are looked after.
  // It counts once the table is published.
  PrefixMatch MatchPrefix(const PrefixKeys& keys, absl::Span<const int32_t> tokens, int32_t max_tokens,
                          BlockTable& table);

  // By how many blocks num_unused() falls when `table` comes to hold `total_tokens`, its own copy of a block that other
  // tables hold included.
  int32_t BlocksMissing(const BlockTable& table, int32_t total_tokens) const;

  // Whether Reserve would exchange the block that is written next, because others hold or can find it.
  bool NeedsCopy(const BlockTable& table, int32_t total_tokens) const { return SharedTail(table, total_tokens) >= 0; }

  // Whether Reserve certainly has nothing to do, as in most steps of decodes. May be false for nothing.
  bool HoldsAll(const BlockTable& table, int32_t total_tokens) const {
    return total_tokens <= int64_t{table.size()} * block_size_ && !table.tail_may_be_shared_ &&
           table.num_on_host_ == 0 && pages_ == nullptr;
  }

  // Makes `table` hold `total_tokens`, with those from num_stored() on in blocks that it may write. All or nothing:
  // kResourceExhausted if more blocks are missing than are unused, and then nothing has changed. Takes free blocks
  // first, then evicts cached ones.
  //
  // Blocks that were found on the host are exchanged for device blocks, and the copies that fill them appended to
  // *copies. What is evicted goes to the host by such a copy, too, if it is worth a place there and `copies` is not
  // null.
  //
  // If the block that is written next is held by others or can be found, the table gets its own and the copy that fills
  // it is appended to *copies (null: this cannot happen). Copies must run in the order in which they were given, before
  // the step writes anything: then each source is still whole, even if it has been handed to someone else in between.
  absl::Status Reserve(BlockTable& table, int32_t total_tokens, std::vector<BlockCopy>* copies = nullptr);

  // With layer groups, Reserve gets pages within windows for the next token only. This one gets them up to token
  // `step_end`, as far as there are any; returns the end of what can be stored in the step. The rest of the step may
  // not be planned. Copies as for Reserve. REQUIRES: step_end is at most what was reserved.
  int32_t ReserveStep(BlockTable& table, int32_t step_end, std::vector<BlockCopy>* copies = nullptr) {
    return pages_ == nullptr ? step_end : ReserveStepPages(table, step_end, copies);
  }

  // The first `num_computed` tokens are stored: to be called once the step that stored them has completed. Makes the
  // full blocks among them findable. `tokens` are the sequence's, at least num_computed; keys.blocks grows to the full
  // blocks' number. Where equal contents are findable already, in another block, that one stays.
  // Gives back pages that have slid out of their group's window.
  void Publish(BlockTable& table, absl::Span<const int32_t> tokens, int32_t num_computed, PrefixKeys& keys);

  // Makes the part-filled last block findable too, with the tokens that were stored according to the latest Publish
  // (or match). The table may go on: Reserve will give it a copy. Nothing happens if the block is itself a copy that no
  // completed step has made yet.
  void Seal(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys);

  // A second table with the first `num_tokens` stored tokens of `parent`. All blocks are shared; whoever writes to a
  // part-filled one first, gets a copy in Reserve. With layer groups the result is empty if what a window needs at
  // `num_tokens` is gone; after a Publish it is there up to GroupPages::kSlack tokens back.
  BlockTable Fork(const BlockTable& parent, int32_t num_tokens);

  // Another request than the parent's goes on with a fork: a hit, once the table is published.
  void CountAsHit(BlockTable& fork) { fork.hit_pending_ = true; }

  // The step for which these copies were made has failed: what they were to fill can no longer be found. The caller
  // sees to it that tables which hold any of it are cleared.
  void CopiesFailed(absl::Span<const BlockCopy> copies);
  // Whether `table` holds one of `places`, which are numbers as in BlockCopy: blocks, pages with layer groups.
  bool HoldsAny(const BlockTable& table, const absl::flat_hash_set<BlockId>& places) const;

  // --- The cache

  // Whether others may find what `table` stores: it is written for the cache, and nothing was reset since it began.
  bool MayBeFound(const BlockTable& table, const PrefixKeys& keys) const {
    return enable_prefix_cache_ && keys.write && table.epoch_ == epoch_ && table.num_on_host_ == 0;
  }

  void SetHostUse(const HostUse& use) { host_use_ = use; }
  // Moves what the table has stored to host blocks of its own, by copies that are appended to *copies; Reserve brings
  // it back. For tables that the cache must not know. False, and the table is as before, if nothing is stored or the
  // host has no room.
  bool SwapOut(BlockTable& table, std::vector<BlockCopy>* copies);
  // What nobody else holds of the table is not worth a place on the host, until it is used again.
  void KeepOffHost(const BlockTable& table);

  // Ends retention that has expired. Earlier times than the latest are ignored.
  void AdvanceTime(absl::Time now);

  // Someone waits who will hit these: what is found becomes the most recently used, so that others are evicted first.
  // `blocks`: the keys of the leading full blocks of `tokens`.
  void Spare(const BlockHash& root, absl::Span<const BlockHash> blocks, absl::Span<const int32_t> tokens);

  // At most `max_blocks` blocks of `tenant` (>= 1) are findable; beyond, its least valuable unused ones go, and while
  // none is unused it publishes nothing. -1: no limit. O(blocks).
  void SetTenantQuota(int32_t tenant, int32_t max_blocks);

  // The longest chains, in no particular order: one for each block that no other follows. O(blocks).
  std::vector<PrefixInfo> ListPrefixes() const;

  // Nobody finds these any more: all that begins with `tokens` behind `root`; all that a tenant has stored, with what
  // lies behind it; everything. Returns how many blocks that are. Running tables keep theirs; after DropAll they
  // publish nothing more, after the others they publish again what they go on with.
  int32_t DropPrefix(const BlockHash& root, absl::Span<const int32_t> tokens);
  int32_t DropTenant(int32_t tenant);
  int32_t DropAll();

  // Null: none. It outlives the manager or is taken away before.
  void SetObserver(BlockManagerObserver* observer) { observer_ = observer; }

  const KvEventLog& events() const { return events_; }
  // This manager takes the place of another, with the same options, which is used no more: its events follow on those
  // of the other, which end with kCleared. REQUIRES: nothing has happened here yet.
  void ContinueEvents(BlockManager& before) {
    events_ = std::move(before.events_);
    events_.Cleared();
  }

  bool integrity_enabled() const { return integrity_ != nullptr; }
  // What came up since the last time, to be done with the plan being made. REQUIRES: integrity_enabled().
  void TakeIntegrityWork(IntegrityWork* work);
  // The step of the plan that had this work has completed, or failed. Steps end in the order of their plans.
  void EndIntegrityWork(const IntegrityWork& work, bool failed);

  // --- Figures

  int32_t BlocksFor(int32_t num_tokens) const {
    return static_cast<int32_t>((static_cast<uint32_t>(num_tokens) + block_size_ - 1) /
                                static_cast<uint32_t>(block_size_));
  }
  // Blocks that Reserve can still hand out, and all that there are to hand out: with layer groups, pages.
  int32_t num_unused() const { return pages_ != nullptr ? pages_->num_unused() : pool_.num_unused(); }
  int32_t num_usable() const { return pages_ != nullptr ? pages_->num_usable() : pool_.num_blocks() - 1; }
  // Of these, what a sequence of so many tokens needs to be computed.
  int64_t BlocksForSequence(int32_t num_tokens) const;
  // At least so many are missing to an empty table for `num_tokens` tokens, of which the cache has `found_blocks`
  // blocks.
  int64_t LeastMissing(int32_t num_tokens, int32_t found_blocks) const {
    const int64_t full_groups = pages_ != nullptr ? pages_->num_full_groups() : 1;
    return full_groups * (BlocksFor(num_tokens) - found_blocks);
  }
  // Null without layer groups.
  const GroupPages* pages() const { return pages_.get(); }
  int32_t block_size() const { return block_size_; }
  // Of a hit that ends inside its block number `block`, from 0: the fewest tokens of that block.
  int32_t LeastTokensOf(int32_t block) const { return block == 0 ? block_size_ : min_partial_tokens_; }
  auto chain_hash() const { return chain_hash_; }
  bool prefix_cache_enabled() const { return enable_prefix_cache_; }
  bool has_host_tier() const { return pool_.num_host_blocks() > 0; }
  // Of a number as in BlockCopy.
  bool IsHost(BlockId place) const {
    return pages_ != nullptr ? pages_->IsHost(PageId{static_cast<int32_t>(place)}) : pool_.IsHost(place);
  }
  // What a table holds of its blocks begin .. end - 1: their number, with layer groups that of pages.
  int32_t NumPlaces(const BlockTable& table, int32_t begin, int32_t end) const;
  // What a block takes up on the host for as long as its prefix lasts: one, with layer groups that of those without a
  // window, and at least one.
  int32_t places_per_block() const { return pages_ != nullptr ? std::max(1, pages_->num_full_groups()) : 1; }
  // Blocks have numbers below this one.
  int32_t num_block_ids() const { return pool_.num_all_blocks(); }
  bool IsFindable(BlockId block) const { return pool_.is_cached(block); }
  int32_t count(BlockId block) const { return pool_.count(block); }
  int64_t num_evictions() const { return num_evictions_ + (pages_ != nullptr ? pages_->num_dropped() : 0); }
  BlockStats stats() const;

  // For tests: BlockPool::FailAtBlock.
  int64_t FailAtBlock(int64_t n) { return pool_.FailAtBlock(n); }

  // kInternal naming the first broken invariant: each block in exactly one state, counts equal to the live tables'
  // entries, findable blocks equal to the cache's entries, the order of eviction. O(blocks x log + table entries).
  absl::Status CheckInvariants() const;

 private:
  // BlockPool::Cache
  void OnUnused(BlockId block) override { eviction_.SetUnused(cache_.entry(block)); }
  void OnUsed(BlockId block) override { eviction_.SetUsed(cache_.entry(block)); }
  void Evict() override;

  // The index of the block that the table writes next, if others can see it; -1 otherwise.
  int32_t SharedTail(const BlockTable& table, int32_t total_tokens) const;
  // By how many device blocks a copy of it makes num_unused() fall: 0 if nobody else holds it, for then it is unused
  // afterwards.
  int32_t BlocksToCopy(const BlockTable& table, int32_t tail) const;
  void CopyTail(BlockTable& table, int32_t tail);
  void Truncate(BlockTable& table, int32_t num_blocks);
  void Explain(const PrefixKeys& keys, absl::Span<const int32_t> tokens, PrefixMatch* match) const;
  void MatchInsideBlock(absl::Span<const int32_t> tokens, BlockTable& table, PrefixMatch* match);
  void PublishFull(BlockTable& table, absl::Span<const int32_t> tokens, PrefixKeys& keys);
  // False if the tenant's quota does not allow it, or what it costs is the parent itself.
  bool Insert(const PrefixLink& parent, const PrefixKeys& keys, int32_t position, absl::Span<const int32_t> tokens,
              BlockId block);
  bool MakeRoomInQuota(int32_t tenant);
  void CountHit(BlockTable& table, const PrefixKeys& keys);
  // The block, and all behind it, can no longer be found. Returns how many blocks those are.
  int32_t Forget(BlockId block);
  void ForgetOne(BlockId block);
  int32_t ForgetPrefix(const BlockHash& root, absl::Span<const int32_t> tokens);
  PrefixInfo InfoOf(BlockId last) const;
  const BlockHash& KeyOf(const PrefixLink& link) const {
    return link.entry == kNoEntry ? link.id : cache_.key(cache_.block(link.entry));
  }
  // One more holder of a block that was found: this table.
  void Hold(BlockId found, BlockTable& table);

  // Calls body(place) for each place in memory where contents of the block stand: the block, or its pages.
  template <typename F>
  void ForPlaces(BlockId block, F body) const {
    if (pages_ == nullptr) return body(block);
    for (int32_t group = 0; group < pages_->num_groups(); ++group) {
      if (pages_->Has(group, block)) body(PlaceOf(group, block));
    }
  }
  // Whose contents stand there; the null block if nobody's.
  BlockId BlockAt(BlockId place) const {
    return pages_ == nullptr ? place : pages_->owner(PageId{static_cast<int32_t>(place)});
  }
  BlockId PlaceOf(int32_t group, BlockId block) const {
    return BlockId{static_cast<int32_t>(pages_->page(group, block))};
  }
  void NoteSealed(BlockId block, int32_t num_tokens);
  void NoteUnsealed(BlockId block);

  // --- host_tier.cc

  KvEvent::Tier TierOf(BlockId block) const {
    return pool_.IsHost(block) ? KvEvent::Tier::kHost : KvEvent::Tier::kDevice;
  }
  bool Demote(BlockId block);
  bool HasRoomOnHost(int32_t num_blocks, int32_t num_pages) const;
  bool MakeRoomOnHost(int32_t num_blocks, int32_t num_pages);
  void Fetch(BlockTable& table, int32_t num_blocks, int32_t tail);
  int32_t CountOnHost(const BlockTable& table) const;
  void Adopt(BlockId on_host, BlockId own);
  void MoveToDevice(BlockId from, BlockId to);
  void NoteMove(BlockId block);
  absl::Status CheckTables() const;

  // --- group_blocks.cc: what layer groups add

  // How many tokens of `total_tokens` Reserve gets pages for within windows.
  static int32_t PagedTokens(const BlockTable& table, int32_t total_tokens) {
    return std::min(total_tokens, table.num_stored_ + 1);
  }
  int32_t ReserveStepPages(BlockTable& table, int32_t step_end, std::vector<BlockCopy>* copies);
  bool RoomToCopyPages(const BlockTable& table, int32_t total_tokens) const;
  int32_t PagesMissing(const BlockTable& table, int32_t total_tokens) const;
  int32_t PagesWanted(const BlockTable& table, int32_t group, int32_t total_tokens, int32_t paged_tokens) const;
  int32_t PagesToFetch(const BlockTable& table) const;
  void AttachPage(int32_t group, BlockId block);
  void AttachPages(BlockTable& table, int32_t total_tokens, int32_t paged_tokens);
  void CopyPages(BlockId src, BlockId dst);
  void DemotePages(BlockId block, BlockId on_host);
  void FetchPages(const BlockTable& table, int32_t index, BlockId on_host);
  void SwapOutPages(const BlockTable& table, int32_t index, BlockId from, std::vector<BlockCopy>* copies);
  bool SharePages(BlockTable& table);
  void SlideOut(BlockTable& table);
  void NoteFound(const BlockTable& table);
  void CutToPages(BlockTable& table, const PrefixKeys& keys, PrefixMatch* match);
  absl::Status CheckPages() const;

  const int32_t block_size_;
  const bool enable_prefix_cache_;
  const int32_t min_partial_tokens_;
  BlockHash (*const chain_hash_)(const BlockHash& parent, absl::Span<const int32_t> tokens);
  PrefixCache cache_;
  EvictionOrder eviction_;
  KvEventLog events_;
  MissMemory misses_;
  std::unique_ptr<IntegrityLog> integrity_;  // null: off
  BlockPool pool_;
  const std::unique_ptr<GroupPages> pages_;  // null without layer groups
  BlockManagerObserver* observer_ = nullptr;
  HostUse host_use_;
  std::vector<BlockCopy>* copies_ = nullptr;  // while Reserve or ReserveStep runs: where they go
  absl::Time now_ = absl::InfinitePast();
  int32_t epoch_ = 0;  // number of DropAll so far
  int64_t num_evictions_ = 0;
  int64_t num_copied_out_ = 0, num_copied_in_ = 0;
};

}  // namespace quire
