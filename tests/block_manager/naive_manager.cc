#include "tests/block_manager/naive_manager.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace quire::testing {
namespace {

bool Begins(absl::Span<const int32_t> beginning, absl::Span<const int32_t> text) {
  return beginning.size() <= text.size() && std::equal(beginning.begin(), beginning.end(), text.begin());
}

NaiveManager::Text Cut(const NaiveManager::Text& tokens, int32_t begin, int32_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

}  // namespace

NaiveManager::NaiveManager(const BlockManagerOptions& options) : options_(options), bs_(options.block_size) {
  for (int32_t i = 1; i < options.num_blocks; ++i) {
    free_.insert(BlockId{i});
    count_[BlockId{i}] = 0;
  }
  for (int32_t i = 0; i < options.num_host_blocks; ++i) {
    free_host_.insert(BlockId{options.num_blocks + i});
    count_[BlockId{options.num_blocks + i}] = 0;
  }
}

bool NaiveManager::HasHost(const Table& table) const {
  return std::any_of(table.blocks.begin(), table.blocks.end(), [this](BlockId b) { return IsHost(b); });
}

const NaiveManager::Entry* NaiveManager::BySerial(uint64_t serial) const {
  for (const auto& [block, entry] : entries_) {
    if (entry.serial == serial) return &entry;
  }
  return nullptr;
}

BlockId NaiveManager::FullAt(const BlockHash& root, const Text& tokens, int32_t end) const {
  for (const auto& [block, entry] : entries_) {
    if (entry.root == root && static_cast<int32_t>(entry.text.size()) == end && Begins(entry.text, tokens))
      return block;
  }
  return kNullBlock;
}

// Among those behind the text before `begin`, the neighbour of tokens begin .. end - 1 that shares more of them.
PrefixCache::Match NaiveManager::Longest(const BlockHash& root, const Text& tokens, int32_t begin, int32_t end) const {
  std::map<Text, BlockId> siblings;
  for (const auto& [block, entry] : entries_) {
    if (entry.root == root && entry.begin == begin && Begins(absl::MakeSpan(tokens).subspan(0, begin), entry.text)) {
      siblings[Cut(entry.text, begin, static_cast<int32_t>(entry.text.size()))] = block;
    }
  }
  const Text wanted = Cut(tokens, begin, end);
  const auto shared = [&](const Text& own) {
    return static_cast<int32_t>(std::mismatch(own.begin(), own.end(), wanted.begin(), wanted.end()).first -
                                own.begin());
  };
  const auto after = siblings.lower_bound(wanted);
  PrefixCache::Match best;
  if (after != siblings.begin()) {
    const auto before = std::prev(after);
    if (const int32_t n = shared(before->first); n > 0) best = {before->second, n};
  }
  if (after != siblings.end()) {
    if (const int32_t n = shared(after->first); n > 0 && n >= best.num_tokens) best = {after->second, n};
  }
  return best;
}

std::string NaiveManager::Match(const PrefixKeys& keys, const Text& tokens, int32_t max_tokens, const PrefixMatch& real,
                                Table* table) {
  table->epoch = epoch_;
  int32_t at = 0, partial = 0;
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size()));
  if (options_.enable_prefix_cache && keys.read) {
    for (; at + bs_ <= limit; at += bs_) {
      const BlockId block = FullAt(keys.root, tokens, at + bs_);
      if (block == kNullBlock || (IsHost(block) && !host_use_.fetch)) break;
      table->blocks.push_back(block);
      table->link = entries_[block].serial;
    }
    table->published = static_cast<int32_t>(table->blocks.size());
    table->hit_pending = at > 0;
    const int32_t end = std::min(limit, at + bs_);
    const int32_t least = at == 0 ? bs_ : options_.min_partial_tokens;
    if (end - at >= least) {
      const PrefixCache::Match longest = Longest(keys.root, tokens, at, end);
      const bool may_use = !IsHost(longest.block) || host_use_.fetch;
      if (longest.num_tokens >= least && may_use) {
        partial = longest.num_tokens;
        table->blocks.push_back(longest.block);
      }
    }
    for (const BlockId block : table->blocks) ++count_[block];
  }
  table->stored = at + partial;
  if (real.host_blocks !=
      std::count_if(table->blocks.begin(), table->blocks.end(), [this](BlockId b) { return IsHost(b); })) {
    return "the number of blocks on the host";
  }
  if (real.num_tokens != at + partial || real.partial_tokens != partial) {
    return absl::StrFormat("%d tokens found, %d of them inside a block; %d and %d are there", real.num_tokens,
                           real.partial_tokens, at + partial, partial);
  }
  if ((real.miss == MissReason::kNone) != (real.num_tokens == limit && options_.enable_prefix_cache && keys.read)) {
    return absl::StrFormat("%d of %d tokens found, reason %d", real.num_tokens, limit, static_cast<int>(real.miss));
  }
  return "";
}

int32_t NaiveManager::NumUnused() const {
  return static_cast<int32_t>(
      std::count_if(count_.begin(), count_.end(), [this](const auto& c) { return c.second == 0 && !IsHost(c.first); }));
}

std::string NaiveManager::Reserve(int32_t total, bool real_ok, absl::Span<const BlockId> after,
                                  absl::Span<const BlockCopy> copies, int64_t injected, Table* table) {
  const auto size = static_cast<int32_t>(table->blocks.size());
  const int32_t fresh = std::max(0, (total + bs_ - 1) / bs_ - size);
  const int32_t tail = table->stored / bs_;
  const bool writes_inside = table->stored % bs_ != 0 && total > table->stored;
  const bool shared = writes_inside && (count_[table->blocks[tail]] > 1 || entries_.count(table->blocks[tail]) > 0);
  const bool from_host = shared && IsHost(table->blocks[tail]);
  const bool alone = shared && count_[table->blocks[tail]] == 1 && !from_host;
  const auto on_host = static_cast<int32_t>(
      std::count_if(table->blocks.begin(), table->blocks.end(), [this](BlockId b) { return IsHost(b); }));
  const int32_t fetched = on_host - from_host;
  const bool fits = fresh + fetched + (shared && !alone ? 1 : 0) <= NumUnused();
  const bool copy = shared && (from_host || fresh + fetched < NumUnused());
  if (real_ok != (fits && (injected == 0 || fresh + fetched + copy < injected))) {
    return absl::StrFormat("%d blocks wanted, %d unused, a copy %d: granted %d", fresh + fetched, NumUnused(), copy,
                           real_ok);
  }
  if (!real_ok) return after == table->blocks && copies.empty() ? "" : "a refused table has changed";
  if (size == 0) table->epoch = epoch_;
  if (static_cast<int32_t>(after.size()) != size + fresh) return "the table's size";
  std::vector<BlockId> taken(after.begin() + size, after.end());
  if (copy) taken.push_back(after[tail]);
  for (int32_t i = size - 1; i >= 0; --i) {
    if (IsHost(table->blocks[i]) && !(copy && i == tail)) taken.push_back(after[i]);
  }
  for (const BlockId block : taken) {
    if (free_.empty()) {
      if (std::string wrong = Evict(&copies); !wrong.empty()) return wrong;
    }
    if (free_.erase(block) == 0) return absl::StrFormat("block %d is handed out and not free", static_cast<int>(block));
    count_[block] = 1;
  }
  if (std::string wrong = Fetch(after, copy ? tail : -1, &copies, table); !wrong.empty()) return wrong;
  if (copies.size() != (copy ? 1 : 0)) return "too many copies";
  if (copy) {
    if (copies[0] != BlockCopy{table->blocks[tail], after[tail]}) return "a copy of something else";
    copied_in_ += from_host;
    Release(table->blocks[tail]);
    table->copy_pending = true;
  } else if (shared) {
    Forget(table->blocks[tail]);
  }
  for (int32_t i = 0; i < size; ++i) {
    if (after[i] != table->blocks[i] && !(copy && i == tail)) return "a block was exchanged";
  }
  table->blocks.assign(after.begin(), after.end());
  return "";
}

std::string NaiveManager::Evict(absl::Span<const BlockCopy>* copies) {
  const BlockId victim = Least([this](BlockId b) { return !IsHost(b) && IsLeaf(b, true); });
  const Entry entry = entries_.at(victim);
  clock_ = std::max(clock_, entry.score);
  ++evictions_;
  bool goes = options_.num_host_blocks > 0 && host_use_.max_demotions > 0 && !entry.off_host;
  if (goes && free_host_.empty()) {
    const BlockId least = Least([this](BlockId b) { return IsHost(b) && IsLeaf(b, false); });
    const uint64_t serial = entry.serial;
    goes = least != kNullBlock && Least([&](BlockId b) { return b == least || b == victim; }) == least;
    if (goes) Forget(least);
    if (BySerial(serial) == nullptr) return "";
  }
  if (!goes) {
    Forget(victim);
    return "";
  }
  if (copies->empty()) return "a block was not copied to the host";
  const BlockCopy copy = copies->front();
  copies->remove_prefix(1);
  if (copy.src != victim || free_host_.erase(copy.dst) == 0) return "a wrong copy to the host";
  --host_use_.max_demotions;
  ++copied_out_;
  Move(victim, copy.dst);
  free_.insert(victim);
  return "";
}

void NaiveManager::Move(BlockId from, BlockId to) {
  entries_[to] = entries_.at(from);
  entries_.erase(from);
}

std::string NaiveManager::Fetch(absl::Span<const BlockId> after, int32_t tail, absl::Span<const BlockCopy>* copies,
                                Table* table) {
  for (size_t i = 0; i < table->blocks.size(); ++i) {
    const BlockId on_host = table->blocks[i];
    if (!IsHost(on_host) || static_cast<int32_t>(i) == tail) continue;
    if (copies->empty() || copies->front() != BlockCopy{on_host, after[i]}) return "a wrong copy from the host";
    copies->remove_prefix(1);
    ++copied_in_;
    if (entries_.count(on_host) > 0) Move(on_host, after[i]);
    Release(on_host);
    table->blocks[i] = after[i];
  }
  return "";
}

void NaiveManager::Publish(const PrefixKeys& keys, const Text& tokens, int32_t computed, Table* table) {
  if (table->hit_pending) {
    table->hit_pending = false;
    for (int32_t i = 0; BySerial(table->link) != nullptr && i < table->published; ++i) {
      if (entries_.count(table->blocks[i]) == 0) continue;
      Entry& entry = entries_.at(table->blocks[i]);
      ++entry.hits;
      entry.off_host = false;
      Stamp(entry);
      const RetentionLevel level = keys.retention.For(i * bs_, (i + 1) * bs_);
      const bool stronger = level.priority > entry.priority ||
                            (level.priority == entry.priority && level.ttl > entry.ttl) || entry.expired;
      SetLevel(entry, stronger ? level : RetentionLevel{entry.priority, entry.ttl});
    }
  }
  table->stored = computed;
  table->copy_pending = false;
  if (!options_.enable_prefix_cache || !keys.write || table->epoch != epoch_ || HasHost(*table)) return;
  if (computed / bs_ > table->published) PublishFull(keys, tokens, table);
}

void NaiveManager::PublishFull(const PrefixKeys& keys, const Text& tokens, Table* table) {
  if (table->published == 0 || BySerial(table->link) == nullptr) {
    table->published = 0;
    table->link = 0;
    table->hit_pending = false;
  }
  for (int32_t i = table->published; i < table->stored / bs_; ++i) {
    BlockId findable = FullAt(keys.root, tokens, (i + 1) * bs_);
    if (findable == kNullBlock) {
      findable = table->blocks[i];
      if (!Insert(keys, tokens, i * bs_, (i + 1) * bs_, findable, table)) return;
    } else if (IsHost(findable) && entries_.count(table->blocks[i]) == 0) {
      Move(findable, table->blocks[i]);
      if (count_[findable] == 0) free_host_.insert(findable);
      findable = table->blocks[i];
    }
    table->link = entries_[findable].serial;
    table->published = i + 1;
  }
}

void NaiveManager::Seal(const PrefixKeys& keys, const Text& tokens, Table* table) {
  if (!options_.enable_prefix_cache || !keys.write || table->epoch != epoch_ || HasHost(*table)) return;
  PublishFull(keys, tokens, table);
  const int32_t begin = table->stored / bs_ * bs_;
  if (begin == table->stored || table->copy_pending || table->published < table->stored / bs_) return;
  const BlockId block = table->blocks[begin / bs_];
  if (Longest(keys.root, tokens, begin, table->stored).num_tokens == table->stored - begin) return;
  Insert(keys, tokens, begin, table->stored, block, table);
}

int32_t NaiveManager::FindableOf(int32_t tenant) const {
  return static_cast<int32_t>(
      std::count_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.second.tenant == tenant; }));
}

bool NaiveManager::Insert(const PrefixKeys& keys, const Text& tokens, int32_t begin, int32_t end, BlockId block,
                          Table* table) {
  if (entries_.count(block) > 0) Forget(block);
  if (const auto quota = quota_.find(keys.tenant); quota != quota_.end()) {
    while (FindableOf(keys.tenant) + 1 > quota->second) {
      const BlockId victim = NextOf(keys.tenant);
      if (victim == kNullBlock) return false;
      Forget(victim);
    }
  }
  if (begin > 0 && BySerial(table->link) == nullptr) return false;
  for (const auto& [other, entry] : entries_) {
    if (entry.root == keys.root && entry.begin == begin && static_cast<int32_t>(entry.text.size()) < end &&
        Begins(entry.text, tokens)) {
      Forget(other);
      break;
    }
  }
  Entry entry;
  entry.root = keys.root;
  entry.text = Cut(tokens, 0, end);
  entry.begin = begin;
  entry.serial = ++serials_;
  entry.parent = begin == 0 ? 0 : table->link;
  entry.tenant = keys.tenant;
  Stamp(entry);
  SetLevel(entry, keys.retention.For(begin, begin + bs_));
  entries_[block] = entry;
  return true;
}

void NaiveManager::Stamp(Entry& entry) {
  entry.last_use = ++uses_;
  entry.last_used = now_;
  if (options_.eviction.policy == EvictionPolicy::kLru) return;
  const int64_t cost = 1024 + int64_t{1024} * entry.begin / options_.eviction.attention_equal_tokens;
  entry.score = clock_ + cost * (1 + std::min(entry.hits, 15));
}

int32_t NaiveManager::NumPinned() const {
  return static_cast<int32_t>(std::count_if(entries_.begin(), entries_.end(),
                                            [](const auto& e) { return e.second.priority > kDefaultRetention; }));
}

void NaiveManager::SetLevel(Entry& entry, const RetentionLevel& level) {
  entry.priority = kDefaultRetention;  // not counted itself
  const auto cap = static_cast<int32_t>((options_.num_blocks - 1) * options_.eviction.max_pinned_share);
  const bool refused = level.priority > kDefaultRetention && NumPinned() >= cap;
  refused_ += refused;
  entry.priority = refused ? kDefaultRetention : level.priority;
  entry.ttl = refused ? absl::InfiniteDuration() : level.ttl;
  entry.expires = now_ + entry.ttl;
  entry.expired = false;
}

bool NaiveManager::IsLeaf(BlockId block, bool on_device) const {
  if (count_.at(block) > 0) return false;
  const uint64_t serial = entries_.at(block).serial;
  return std::none_of(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e.second.parent == serial && count_.at(e.first) == 0 && !(on_device && IsHost(e.first));
  });
}

template <typename Eligible>
BlockId NaiveManager::Least(Eligible eligible) const {
  const auto rank = [](const Entry& e) { return std::make_tuple(e.priority, !e.expired, e.score, e.last_use); };
  BlockId best = kNullBlock;
  for (const auto& [block, entry] : entries_) {
    if (eligible(block) && (best == kNullBlock || rank(entry) < rank(entries_.at(best)))) best = block;
  }
  return best;
}

BlockId NaiveManager::NextOf(int32_t tenant) const {
  const auto of_tier = [&](bool host) {
    return Least(
        [&, host](BlockId b) { return entries_.at(b).tenant == tenant && IsHost(b) == host && IsLeaf(b, false); });
  };
  const BlockId on_host = of_tier(true);
  return on_host != kNullBlock ? on_host : of_tier(false);
}

int32_t NaiveManager::Forget(BlockId block) {
  const Entry gone = entries_.at(block);
  return static_cast<int32_t>(std::erase_if(entries_, [&](const auto& e) {
    const bool goes = e.first == block ||
                      (gone.text.size() % bs_ == 0 && e.second.root == gone.root &&
                       e.second.begin >= static_cast<int32_t>(gone.text.size()) && Begins(gone.text, e.second.text));
    if (goes && count_[e.first] == 0) (IsHost(e.first) ? free_host_ : free_).insert(e.first);
    return goes;
  }));
}

void NaiveManager::Release(BlockId block) {
  if (--count_[block] > 0) return;
  if (const auto entry = entries_.find(block); entry != entries_.end()) {
    Stamp(entry->second);
  } else {
    (IsHost(block) ? free_host_ : free_).insert(block);
  }
}

NaiveManager::Table NaiveManager::Fork(const Table& parent, int32_t num_tokens) {
  Table table;
  table.blocks.assign(parent.blocks.begin(), parent.blocks.begin() + (num_tokens + bs_ - 1) / bs_);
  for (const BlockId block : table.blocks) ++count_[block];
  table.stored = num_tokens;
  table.epoch = parent.epoch;
  table.copy_pending = parent.copy_pending && num_tokens > parent.stored / bs_ * bs_;
  if (parent.published <= num_tokens / bs_) {
    table.published = parent.published;
    table.link = parent.link;
  }
  return table;
}

void NaiveManager::Clear(Table* table) {
  for (; !table->blocks.empty(); table->blocks.pop_back()) Release(table->blocks.back());
  *table = {};
}

void NaiveManager::CopiesFailed(absl::Span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (entries_.count(copy.dst) > 0) Forget(copy.dst);
  }
}

void NaiveManager::KeepOffHost(const Table& table) {
  for (const BlockId block : table.blocks) {
    if (count_[block] == 1 && entries_.count(block) > 0) entries_[block].off_host = true;
  }
}

std::string NaiveManager::SwapOut(bool real_ok, absl::Span<const BlockId> after, absl::Span<const BlockCopy> copies,
                                  Table* table) {
  const int32_t kept = (table->stored + bs_ - 1) / bs_;
  const auto moved = static_cast<size_t>(
      std::count_if(table->blocks.begin(), table->blocks.begin() + kept, [this](BlockId b) { return !IsHost(b); }));
  bool ok = kept > 0;
  while (ok && free_host_.size() < moved) {
    const BlockId least = Least([this](BlockId b) { return IsHost(b) && IsLeaf(b, false); });
    ok = least != kNullBlock;
    if (ok) Forget(least);
  }
  if (ok != real_ok) return absl::StrFormat("%d blocks to swap out, done %d", moved, real_ok);
  if (!ok) return after == table->blocks && copies.empty() ? "" : "a table that was not swapped out has changed";
  if (static_cast<int32_t>(after.size()) != kept || copies.size() != moved) return "what was swapped out";
  for (; static_cast<int32_t>(table->blocks.size()) > kept; table->blocks.pop_back()) Release(table->blocks.back());
  for (int32_t i = kept - 1; i >= 0; --i) {
    const BlockId block = table->blocks[i];
    if (IsHost(block)) continue;
    if (copies.front() != BlockCopy{block, after[i]} || free_host_.erase(after[i]) == 0) return "a wrong swap";
    copies.remove_prefix(1);
    count_[after[i]] = 1;
    table->blocks[i] = after[i];
    ++copied_out_;
    Release(block);
  }
  table->published = 0;
  table->hit_pending = false;
  return after == table->blocks ? "" : "a block on the host was exchanged";
}

void NaiveManager::AdvanceTime(absl::Time now) {
  now_ = std::max(now_, now);
  for (auto& [block, entry] : entries_) {
    if (entry.expired || entry.ttl == absl::InfiniteDuration() || entry.expires > now_) continue;
    entry.priority = std::min(entry.priority, kDefaultRetention);
    entry.expired = true;
  }
}

void NaiveManager::Spare(const PrefixKeys& keys, const Text& tokens) {
  int32_t at = 0;
  const auto size = static_cast<int32_t>(tokens.size());
  while (at + bs_ <= size && FullAt(keys.root, tokens, at + bs_) != kNullBlock) at += bs_;
  const PrefixCache::Match inside = Longest(keys.root, tokens, at, std::min(size, at + bs_));
  if (at > 0) Stamp(entries_.at(FullAt(keys.root, tokens, at)));
  if (inside.num_tokens >= (at == 0 ? bs_ : options_.min_partial_tokens)) Stamp(entries_.at(inside.block));
}

void NaiveManager::SetQuota(int32_t tenant, int32_t quota) {
  if (quota < 0) {
    quota_.erase(tenant);
    return;
  }
  quota_[tenant] = quota;
  while (FindableOf(tenant) > quota && NextOf(tenant) != kNullBlock) Forget(NextOf(tenant));
}

int32_t NaiveManager::DropPrefix(const BlockHash& root, const Text& tokens) {
  int32_t dropped = 0;
  while (true) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) {
      return e.second.root == root && Begins(tokens, e.second.text);
    });
    if (found == entries_.end()) return dropped;
    dropped += Forget(found->first);
  }
}

int32_t NaiveManager::DropTenant(int32_t tenant) {
  int32_t dropped = 0;
  while (true) {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.second.tenant == tenant; });
    if (found == entries_.end()) return dropped;
    dropped += Forget(found->first);
  }
}

int32_t NaiveManager::DropAll() {
  ++epoch_;
  const auto dropped = static_cast<int32_t>(entries_.size());
  while (!entries_.empty()) Forget(entries_.begin()->first);
  return dropped;
}

std::string NaiveManager::Compare(const BlockManager& real) const {
  for (const auto& [block, count] : count_) {
    if (real.count(block) != count || real.IsFindable(block) != (entries_.count(block) > 0)) {
      return absl::StrFormat("block %d: count %d, findable %d; it must be %d and %d", static_cast<int>(block),
                             real.count(block), real.IsFindable(block), count, entries_.count(block));
    }
  }
  const BlockStats stats = real.stats();
  const auto free = static_cast<int32_t>(free_.size());
  if (stats.free != free || stats.cached != NumUnused() - free ||
      stats.free + stats.cached + stats.active != stats.total || stats.evictions != evictions_ ||
      stats.pinned != NumPinned() || stats.pins_refused != refused_) {
    return absl::StrFormat("%d free, %d cached, %d evicted, %d pinned, %d refused; it must be %d, %d, %d, %d and %d",
                           stats.free, stats.cached, stats.evictions, stats.pinned, stats.pins_refused, free,
                           NumUnused() - free, evictions_, NumPinned(), refused_);
  }
  const auto host_used = options_.num_host_blocks - static_cast<int32_t>(free_host_.size());
  if (stats.host_total != options_.num_host_blocks || stats.host_used != host_used || stats.copied_out != copied_out_ ||
      stats.copied_in != copied_in_) {
    return absl::StrFormat("%d of %d host blocks in use, %d copied out, %d in; it must be %d, %d and %d",
                           stats.host_used, stats.host_total, stats.copied_out, stats.copied_in, host_used, copied_out_,
                           copied_in_);
  }
  using Row = std::tuple<int32_t, int32_t, int32_t, int32_t, bool, bool, absl::Time, absl::Time>;
  std::multiset<Row> rows, expected;
  for (const PrefixInfo& info : real.ListPrefixes()) {
    rows.insert({info.num_tokens, info.num_hits, info.priority, info.tenant, info.in_use, info.on_host, info.last_used,
                 info.expires});
  }
  for (const auto& [block, entry] : entries_) {
    const uint64_t serial = entry.serial;
    if (std::any_of(entries_.begin(), entries_.end(), [&](const auto& e) { return e.second.parent == serial; }))
      continue;
    expected.insert({static_cast<int32_t>(entry.text.size()), entry.hits, entry.priority, entry.tenant,
                     count_.at(block) > 0, IsHost(block), entry.last_used, entry.expires});
  }
  const auto print = [](const std::multiset<Row>& set) {
    std::string text;
    for (const auto& [tokens, hits, priority, tenant, in_use, on_host, used, expires] : set) {
      absl::StrAppendFormat(&text, "\n  %d tokens, %d hits, priority %d, tenant %d, in use %d, on host %d, %s, %s",
                            tokens, hits, priority, tenant, in_use, on_host, absl::FormatTime(used),
                            absl::FormatTime(expires));
    }
    return text;
  };
  return rows == expected ? "" : absl::StrCat("listed are", print(rows), "\nand not", print(expected));
}

}  // namespace quire::testing
