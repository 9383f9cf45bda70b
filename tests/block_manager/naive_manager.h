#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "block_manager/block_manager.h"

namespace quire::testing {

// What a block manager means, said as plainly as possible and as slowly as it comes: every entry knows its whole text,
// everything is found by going through all of it. It does what the real one does, block for block; only which free
// block is handed out next is left to the real one, and checked.
//
// Each function takes what the real one gave where that is not determined, and returns what is wrong, or "".
class NaiveManager {
 public:
  explicit NaiveManager(const BlockManagerOptions& options);

  struct Table {
    std::vector<BlockId> blocks;
    int32_t stored = 0, published = 0;
    uint64_t link = 0;  // serial of the entry of block published - 1; 0: the root
    bool copy_pending = false, hit_pending = false;
    int32_t epoch = 0;
  };
  using Text = std::vector<int32_t>;

  std::string Match(const PrefixKeys& keys, const Text& tokens, int32_t max_tokens, const PrefixMatch& real,
                    Table* table);
  // `after`: the real table's blocks; `copies`: those the real one added; `injected`: it was told to fail at this
  // block.
  std::string Reserve(int32_t total, bool real_ok, absl::Span<const BlockId> after, absl::Span<const BlockCopy> copies,
                      int64_t injected, Table* table);
  void Publish(const PrefixKeys& keys, const Text& tokens, int32_t computed, Table* table);
  void Seal(const PrefixKeys& keys, const Text& tokens, Table* table);
  Table Fork(const Table& parent, int32_t num_tokens);
  void Clear(Table* table);
  void CopiesFailed(absl::Span<const BlockCopy> copies);
  void SetHostUse(const HostUse& use) { host_use_ = use; }
  void KeepOffHost(const Table& table);
  std::string SwapOut(bool real_ok, absl::Span<const BlockId> after, absl::Span<const BlockCopy> copies, Table* table);

  void AdvanceTime(absl::Time now);
  void Spare(const PrefixKeys& keys, const Text& tokens);
  void SetQuota(int32_t tenant, int32_t quota);
  int32_t DropPrefix(const BlockHash& root, const Text& tokens);
  int32_t DropTenant(int32_t tenant);
  int32_t DropAll();

  // Counts, findable blocks, statistics and listed prefixes of the real one are as they must be.
  std::string Compare(const BlockManager& real) const;

 private:
  struct Entry {
    BlockHash root;
    Text text;          // from the first token on
    int32_t begin = 0;  // its own tokens begin here
    uint64_t serial = 0, parent = 0;
    int32_t tenant = 0, hits = 0, priority = kDefaultRetention;
    bool expired = false, off_host = false;
    absl::Duration ttl;
    absl::Time expires, last_used;
    int64_t score = 0;
    uint64_t last_use = 0;
  };

  const Entry* BySerial(uint64_t serial) const;
  BlockId FullAt(const BlockHash& root, const Text& tokens, int32_t end) const;
  PrefixCache::Match Longest(const BlockHash& root, const Text& tokens, int32_t begin, int32_t end) const;
  bool IsHost(BlockId block) const { return static_cast<int32_t>(block) >= options_.num_blocks; }
  bool HasHost(const Table& table) const;
  // Nothing unused stands behind it, on the device or anywhere.
  bool IsLeaf(BlockId block, bool on_device) const;
  template <typename Eligible>
  BlockId Least(Eligible eligible) const;
  BlockId NextOf(int32_t tenant) const;
  // Takes what goes next from the device; the next of `copies` if that brings it to the host.
  std::string Evict(absl::Span<const BlockCopy>* copies);
  void Move(BlockId from, BlockId to);
  std::string Fetch(absl::Span<const BlockId> after, int32_t tail, absl::Span<const BlockCopy>* copies, Table* table);
  bool Insert(const PrefixKeys& keys, const Text& tokens, int32_t begin, int32_t end, BlockId block, Table* table);
  void PublishFull(const PrefixKeys& keys, const Text& tokens, Table* table);
  int32_t Forget(BlockId block);
  void Release(BlockId block);
  void Stamp(Entry& entry);
  void SetLevel(Entry& entry, const RetentionLevel& level);
  int32_t NumPinned() const;
  int32_t NumUnused() const;
  int32_t FindableOf(int32_t tenant) const;

  const BlockManagerOptions options_;
  const int32_t bs_;
  std::map<BlockId, Entry> entries_;  // findable blocks
  std::map<BlockId, int32_t> count_;  // of all blocks
  std::set<BlockId> free_, free_host_;
  HostUse host_use_;
  std::map<int32_t, int32_t> quota_;  // by tenant
  absl::Time now_ = absl::InfinitePast();
  int64_t clock_ = 0;
  uint64_t uses_ = 0, serials_ = 0;
  int32_t epoch_ = 0;
  int64_t evictions_ = 0, refused_ = 0, copied_out_ = 0, copied_in_ = 0;
};

}  // namespace quire::testing
