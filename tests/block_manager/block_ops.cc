#include "tests/block_manager/block_ops.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "block_manager/block_manager.h"
#include "tests/block_manager/naive_manager.h"

namespace quire::testing {
namespace {

BlockHash OneBitHash(const BlockHash& parent, absl::Span<const int32_t> tokens) {
  return {ChainHash(parent, tokens).low & 1, 0};
}

// The bytes as a source of numbers; zeros behind their end.
class Source {
 public:
  explicit Source(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  // 0 .. n - 1; n <= 256.
  int32_t Below(int32_t n) {
    if (bytes_.empty()) return 0;
    const int32_t value = bytes_.front() % n;
    bytes_.remove_prefix(1);
    return value;
  }
  bool OneIn(int32_t n) { return Below(n) == n - 1; }

 private:
  absl::Span<const uint8_t> bytes_;
};

// Layer groups, of which at most one has no window. Pool and host tier are as many pages then.
void DrawGroups(Source& source, BlockManagerOptions* options) {
  options->num_pages = options->num_blocks;
  options->num_host_pages = options->num_host_blocks;
  const bool full = source.OneIn(2);
  if (full) options->group_windows.push_back(0);
  for (int32_t more = 1 + source.Below(2); more > 0; --more) {
    options->group_windows.push_back(1 + source.Below(std::min(255, 4 * options->block_size)));
  }
  if (full) return;
  options->num_blocks *= 1 + source.Below(8);
  options->num_host_blocks *= 1 + source.Below(8);
}

BlockManagerOptions DrawOptions(Source& source) {
  static constexpr int32_t kBlockSizes[] = {1, 2, 3, 4, 8, 16, 32};
  BlockManagerOptions options;
  options.num_blocks = 9 + source.Below(56);
  options.block_size = kBlockSizes[source.Below(7)];
  options.enable_prefix_cache = !source.OneIn(16);
  options.min_partial_tokens = source.OneIn(4) ? 1 + source.Below(options.block_size) : 1;
  options.eviction.policy = source.OneIn(2) ? EvictionPolicy::kLru : EvictionPolicy::kCost;
  options.eviction.attention_equal_tokens = 1 + source.Below(64);
  options.eviction.max_pinned_share = source.Below(5) * 0.25;
  options.num_events = source.Below(8);
  options.num_remembered = source.Below(8);
  options.integrity = source.OneIn(2);
  if (source.OneIn(2)) options.num_host_blocks = source.Below(32);
  if (source.OneIn(4)) DrawGroups(source, &options);
  if (source.OneIn(3)) options.chain_hash = &OneBitHash;
  return options;
}

class BlockOps {
 public:
  BlockOps(Source source, BlockOpsCounts* counts)
      : source_(source),
        counts_(*counts),
        options_(DrawOptions(source_)),
        real_(options_),
        naive_(options_),
        has_groups_(!options_.group_windows.empty()),
        memory_(options_.block_size * (has_groups_ ? int64_t{options_.num_pages} + options_.num_host_pages
                                                   : int64_t{options_.num_blocks} + options_.num_host_blocks)) {}

  std::string Run() {
    for (int64_t number = 0; !source_.empty(); ++number) {
      Operate();
      ++counts_.operations;
      if (error_.empty() && !has_groups_) error_ = naive_.Compare(real_);
      if (const absl::Status status = real_.CheckInvariants(); error_.empty() && !status.ok())
        error_ = std::string(status.message());
      if (error_.empty()) CheckContents();
      if (!error_.empty()) return absl::StrCat("operation ", number, " of kind ", last_, ": ", error_);
    }
    counts_.evictions += real_.stats().evictions;
    (has_groups_ ? counts_.pages_out : counts_.copied_out) += real_.stats().copied_out;
    (has_groups_ ? counts_.pages_in : counts_.copied_in) += real_.stats().copied_in;
    return "";
  }

 private:
  using Text = NaiveManager::Text;

  struct Sequence {
    explicit Sequence(BlockTable empty) : table(std::move(empty)) {}
    Text tokens;
    PrefixKeys keys;
    BlockTable table;
    NaiveManager::Table naive;
    int32_t planned = 0;  // tokens that the plan being made will have stored; 0: it is not in it
  };

  void Operate() {
    const int32_t op = source_.Below(27);
    last_ = op;
    switch (op) {
      case 0:
      case 1:
      case 2:
        return Begin();
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        return Plan();
      case 9:
      case 10:
      case 11:
      case 12:
        return Step();
      case 13:
        return FailStep();
      case 14:
      case 15:
      case 16:
        return End();
      case 17:
      case 18:
        return Fork();
      case 19:
        return Seal();
      case 20:
        return PassTime();
      case 21:
        return Spare();
      case 22:
        return Drop();
      case 23:
        return SetQuota();
      case 24:
        return SetHostUse();
      case 25:
        return KeepOffHost();
      case 26:
        return SwapOut();
    }
  }

  // Beginnings of a few common texts with random ends, so that hits of every length are frequent.
  Text DrawText() {
    const int32_t bs = options_.block_size;
    const int32_t common = source_.Below(std::min(255, 4 * bs + 1)), which = source_.Below(3);
    Text text(common);
    for (int32_t i = 0; i < common; ++i) text[i] = (i * (which + 1) + i / 3) % 3;
    for (int32_t more = 1 + source_.Below(std::min(64, bs + 3)); more > 0; --more) text.push_back(source_.Below(3));
    return text;
  }

  PrefixKeys KeysOf(const Text& text) {
    PrefixKeys keys;
    keys.root = {1 + static_cast<uint64_t>(source_.OneIn(4)), 5};
    BlockHash parent = keys.root;
    const absl::Span<const int32_t> tokens(text);
    const size_t bs = options_.block_size;
    for (size_t i = 0; (i + 1) * bs <= text.size(); ++i) {
      keys.blocks.push_back(parent = options_.chain_hash(parent, tokens.subspan(i * bs, bs)));
    }
    return keys;
  }

  void Begin() {
    if (sequences_.size() >= 12) return;
    auto s = std::make_unique<Sequence>(real_.NewTable());
    s->tokens = DrawText();
    s->keys = KeysOf(s->tokens);
    const int32_t traits = source_.Below(64);
    s->keys.tenant = traits % 4 == 0 ? 1 + traits / 32 : 0;
    s->keys.read = traits != 1;
    s->keys.write = traits != 2;
    if (traits % 8 == 5) {
      const absl::Duration ttl = traits % 16 == 5 ? absl::Seconds(1 + source_.Below(16)) : absl::InfiniteDuration();
      if (!s->keys.retention.AddSpan(0, 1 + source_.Below(64), source_.Below(101), ttl).ok()) error_ = "AddSpan";
    }
    const auto size = static_cast<int32_t>(s->tokens.size());
    const PrefixMatch match = real_.MatchPrefix(s->keys, s->tokens, size - 1, s->table);
    if (!has_groups_) Note(naive_.Match(s->keys, s->tokens, size - 1, match, &s->naive));
    counts_.hits += match.num_tokens > 0;
    counts_.partial_hits += match.partial_tokens > 0;
    sequences_.push_back(std::move(s));
  }

  void Plan() {
    Sequence* s = Pick();
    if (s == nullptr || s->planned > 0) return;
    const int32_t stored = s->table.num_stored();
    if (stored == static_cast<int32_t>(s->tokens.size())) s->tokens.push_back(source_.Below(3));
    const auto size = static_cast<int32_t>(s->tokens.size());
    const int32_t total = source_.OneIn(3) ? stored + 1 + source_.Below(std::min(200, size - stored)) : size;
    const int64_t injected = source_.OneIn(12) ? 1 + source_.Below(6) : 0;
    real_.FailAtBlock(injected);
    std::vector<BlockCopy> copies;
    const bool fits = real_.BlocksMissing(s->table, total) <= real_.num_unused();
    const bool ok = real_.Reserve(s->table, total, &copies).ok();
    real_.FailAtBlock(0);
    if (injected == 0 && ok != fits) Note("BlocksMissing and Reserve disagree");
    if (!has_groups_) Note(naive_.Reserve(total, ok, s->table.blocks(), copies, injected, &s->naive));
    counts_.refusals += !ok;
    counts_.copies += static_cast<int64_t>(copies.size());
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    if (ok) s->planned = real_.ReserveStep(s->table, total, &copies_);
    if (ok && s->planned <= stored) Note("a step cannot advance");
  }

  // Copies in order, then writes, then what a commit does.
  void Step() {
    const int32_t bs = options_.block_size;
    for (auto next = copies_.begin(); next != copies_.end();) {
      const BlockCopy copy = *next++;
      // One whose table was cleared again may get another content later, even one that can be found.
      const auto fills = [&copy](const BlockCopy& other) { return other.dst == copy.dst; };
      const bool last = std::none_of(next, copies_.end(), fills);
      const bool within = !has_groups_ && !real_.IsHost(copy.src) && !real_.IsHost(copy.dst);
      if (within && last && (real_.count(copy.dst) > 1 || real_.IsFindable(copy.dst))) {
        Note("a copy goes to a block that others see");
      }
      const auto src = memory_.begin() + static_cast<int64_t>(copy.src) * bs;
      std::copy(src, src + bs, memory_.begin() + static_cast<int64_t>(copy.dst) * bs);
    }
    copies_.clear();
    for (const auto& s : sequences_) {
      for (int32_t p = s->table.num_stored(); p < s->planned; ++p) {
        const BlockId block = s->table.blocks()[p / bs];
        if (real_.count(block) != 1 || real_.IsFindable(block)) Note("a block that others see is written");
        for (int32_t group = 0; group < num_groups(); ++group) Slot(*s, group, p) = Prefix(*s, p + 1);
      }
    }
    for (const auto& s : sequences_) {
      if (s->planned == 0) continue;
      real_.Publish(s->table, s->tokens, s->planned, s->keys);
      if (!has_groups_) naive_.Publish(s->keys, s->tokens, s->planned, &s->naive);
      s->planned = 0;
    }
  }

  // Nothing of the plan was done: all in it end, and whoever holds what a copy was to fill; nothing of theirs is
  // sealed.
  void FailStep() {
    real_.CopiesFailed(copies_);
    if (!has_groups_) naive_.CopiesFailed(copies_);
    ++counts_.failed_steps;
    for (size_t i = sequences_.size(); i-- > 0;) {
      if (sequences_[i]->planned > 0 || AwaitsCopy(*sequences_[i])) Remove(i);
    }
    copies_.clear();
  }

  bool AwaitsCopy(const Sequence& s) const {
    if (copies_.empty()) return false;
    absl::flat_hash_set<BlockId> filled;
    for (const BlockCopy& copy : copies_) filled.insert(copy.dst);
    return real_.HoldsAny(s.table, filled);
  }

  int32_t num_groups() const { return has_groups_ ? static_cast<int32_t>(options_.group_windows.size()) : 1; }

  // Where a token of a sequence stands in memory.
  uint64_t& Slot(const Sequence& s, int32_t group, int32_t position) {
    if (!has_groups_) return memory_[s.table.slot(position, options_.block_size)];
    const int32_t i = position / options_.block_size;
    const auto [begin, end] = s.table.paged(group);
    const PageId page = real_.pages()->page(group, s.table.blocks()[i]);
    if (i < begin || i >= end || page == kNoPage) Note("a table lacks a page");
    return memory_[static_cast<int64_t>(page) * options_.block_size + position % options_.block_size];
  }

  // Also between plan and step, as a preemption by someone else in the same plan does.
  void End() {
    if (sequences_.empty()) return;
    const size_t i = source_.Below(static_cast<int32_t>(sequences_.size()));
    Sequence& s = *sequences_[i];
    if (!source_.OneIn(4)) {
      real_.Seal(s.table, s.tokens, s.keys);
      if (!has_groups_) naive_.Seal(s.keys, s.tokens, &s.naive);
    }
    Remove(i);
  }

  void Remove(size_t i) {
    sequences_[i]->table.Clear();
    if (!has_groups_) naive_.Clear(&sequences_[i]->naive);
    sequences_.erase(sequences_.begin() + static_cast<int64_t>(i));
  }

  void Fork() {
    const Sequence* parent = Pick();
    const int32_t stored = parent == nullptr ? 0 : parent->table.num_stored();
    if (stored == 0 || parent->planned > 0 || sequences_.size() >= 12) return;
    const int32_t num_tokens = stored - source_.Below(std::min(stored, 2 * options_.block_size));
    auto s = std::make_unique<Sequence>(real_.Fork(parent->table, num_tokens));
    if (has_groups_ && s->table.empty()) return;  // what a window shows there is gone
    if (!has_groups_) s->naive = naive_.Fork(parent->naive, num_tokens);
    s->tokens.assign(parent->tokens.begin(), parent->tokens.begin() + num_tokens);
    s->tokens.push_back(source_.Below(3));
    s->keys = parent->keys;
    s->keys.blocks.resize(std::min<size_t>(s->keys.blocks.size(), num_tokens / options_.block_size));
    sequences_.push_back(std::move(s));
  }

  void Seal() {
    Sequence* s = Pick();
    if (s == nullptr || s->planned > 0) return;
    real_.Seal(s->table, s->tokens, s->keys);
    if (!has_groups_) naive_.Seal(s->keys, s->tokens, &s->naive);
  }

  void PassTime() {
    now_ += absl::Seconds(source_.Below(8));
    real_.AdvanceTime(now_);
    if (!has_groups_) naive_.AdvanceTime(now_);
  }

  void Spare() {
    const Text text = DrawText();
    const PrefixKeys keys = KeysOf(text);
    real_.Spare(keys.root, keys.blocks, text);
    if (!has_groups_) naive_.Spare(keys, text);
  }

  void Drop() {
    int32_t real = 0, naive = 0;
    switch (source_.Below(16)) {
      case 0:
        real = real_.DropAll();
        naive = naive_.DropAll();
        break;
      case 1:
      case 2: {
        const int32_t tenant = 1 + source_.Below(2);
        real = real_.DropTenant(tenant);
        naive = naive_.DropTenant(tenant);
        break;
      }
      case 3:
      case 4: {
        const Text text = DrawText();
        const PrefixKeys keys = KeysOf(text);
        real = real_.DropPrefix(keys.root, text);
        naive = naive_.DropPrefix(keys.root, text);
        break;
      }
      default:
        return;
    }
    if (real != naive && !has_groups_) Note(absl::StrCat(real, " blocks dropped, ", naive, " had to be"));
  }

  void SetQuota() {
    const int32_t tenant = 1 + source_.Below(2), quota = source_.Below(12) - 1;
    real_.SetTenantQuota(tenant, quota);
    if (!has_groups_) naive_.SetQuota(tenant, quota);
  }

  void SetHostUse() {
    const int32_t use = source_.Below(8);
    HostUse host_use = {.fetch = use != 2};
    if (use == 1 || use == 3) host_use.max_demotions = use / 3;
    real_.SetHostUse(host_use);
    naive_.SetHostUse(host_use);
  }

  // As a preemption in the same plan does.
  void SwapOut() {
    Sequence* s = Pick();
    if (s == nullptr) return;
    std::vector<BlockCopy> copies;
    const bool ok = real_.SwapOut(s->table, &copies);
    if (!has_groups_) Note(naive_.SwapOut(ok, s->table.blocks(), copies, &s->naive));
    copies_.insert(copies_.end(), copies.begin(), copies.end());
    if (ok) s->planned = 0;
  }

  void KeepOffHost() {
    const Sequence* s = Pick();
    if (s == nullptr) return;
    real_.KeepOffHost(s->table);
    if (!has_groups_) naive_.KeepOffHost(s->naive);
  }

  Sequence* Pick() {
    return sequences_.empty() ? nullptr : sequences_[source_.Below(static_cast<int32_t>(sequences_.size()))].get();
  }

  // A number for the first `n` tokens of a sequence.
  static uint64_t Prefix(const Sequence& s, int32_t n) {
    return ChainHash({}, absl::MakeSpan(s.tokens).subspan(0, n)).low;
  }

  // The newest stored token of each sequence, and one other, are its own; those in copies to come are not there yet.
  void CheckContents() {
    for (const auto& s : sequences_) {
      const int32_t stored = s->table.num_stored();
      if (stored != s->naive.stored && !has_groups_) Note("the number of stored tokens");
      if (stored == 0 || AwaitsCopy(*s)) continue;
      for (int32_t group = 0; group < num_groups(); ++group) {
        const int32_t window = has_groups_ ? options_.group_windows[group] : 0;
        const int32_t first = window == 0 ? 0 : std::max(0, stored - window + 1);  // that the next token sees
        if (first == stored) continue;
        const auto other = first + static_cast<int32_t>((counts_.operations * 7) % (stored - first));
        for (const int32_t p : {stored - 1, other}) {
          if (Slot(*s, group, p) != Prefix(*s, p + 1)) Note("a table holds foreign tokens");
        }
      }
    }
  }

  void Note(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

  Source source_;
  BlockOpsCounts& counts_;
  const BlockManagerOptions options_;
  BlockManager real_;
  NaiveManager naive_;  // knows no layer groups: with them contents and invariants are checked alone
  const bool has_groups_;
  std::vector<uint64_t> memory_;  // by slot: of the tokens up to and with the one stored
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<BlockCopy> copies_;  // of the plan being made
  absl::Time now_ = absl::UnixEpoch();
  std::string error_;
  int32_t last_ = 0;  // kind of the latest operation
};

}  // namespace

std::string RunBlockOps(absl::Span<const uint8_t> bytes, BlockOpsCounts* counts) {
  return BlockOps(Source(bytes), counts).Run();
}

}  // namespace quire::testing
