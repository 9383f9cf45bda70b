#include <algorithm>

#include "kernels/base/check.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int64_t kProbeSteps = 32;           // so long the cache's answer for a waiting sequence is believed
constexpr int32_t kWindowsLookedThrough = 4;  // for one window of sequences that do not follow others

// Of the pool, what starts leave to those that run: one block in 20 beyond the first 64. With less, a saturated queue
// of long outputs is preempted again and again (the Orca table in block_manager/README.md); small pools have none to
// spare.
constexpr int32_t kBlocksPerKept = 20, kBlocksWithoutKept = 64;

}  // namespace

// Starts waiting work of a class while there are tokens, time and places for it. Offline work starts only when no
// online work waits.
void Scheduler::Admit(bool offline) {
  if (offline && waiting_.has_online()) return;
  while (budget_.tokens() > 0) {
    Lane* lane = waiting_.FirstLane(offline, round_);
    if (lane == nullptr) return;
    Sequence* sequence = AdmitFrom(lane, offline);
    if (lane->passed_round == round_) continue;
    if (sequence == nullptr) return;
    const bool others_want = waiting_.FirstLane(offline) != nullptr;
    sequence->planned_tokens = budget_.TakeChunk(sequence->num_planned, sequence->num_uncomputed(), others_want);
    prefills_.push_back(sequence);
  }
}

// Starts one of the sequences at the head of a lane, or none: null.
Sequence* Scheduler::AdmitFrom(Lane* lane, bool offline) {
  Sequence* const head = FillWindow(lane, offline);
  if (head == nullptr) lane->passed_round = round_;
  if (head == nullptr || !HasSlotFor(head)) return nullptr;
  for (Sequence* sequence : window_) {
    if (num_running_ > 0) {
      if (SurelyLacksBlocks(*sequence) && !(sequence == head && AnyInterruptible(*head))) continue;
      if (!policy_->MayStart(*sequence)) continue;
      const int32_t known = sequence->tokens.empty() ? sequence->group->prompt_len() : sequence->num_tokens();
      if (!budget_.TakeStanding(known)) return nullptr;
    }
    if (!TryAdmit(sequence, sequence == head)) continue;
    NoteStart(*sequence);
    return sequence;
  }
  return nullptr;
}

// One that has waited starts.
void Scheduler::NoteStart(const Sequence& sequence) {
  const SequenceGroup& group = *sequence.group;
  for (Sequence* passed : group.lane->waiting[group.offline]) {
    if (BeforeInLane()(&sequence, passed)) break;
    passed->num_overtaken += !IsFollowing(*passed);  // that one advances meanwhile
  }
  policy_->NoteStart(sequence);
}

// The sequences of a lane that may start next, in the order of trying, without those that follow others. Returns the
// first of them in rank, or null.
Sequence* Scheduler::FillWindow(Lane* lane, bool offline) {
  const SchedulingPolicy::Window limits = policy_->window();
  window_.clear();
  places_kept_ = 0;
  int32_t looked_at = 0;
  for (Sequence* sequence : lane->waiting[offline]) {
    if (looked_at++ == limits.size * kWindowsLookedThrough) break;
    if (!window_.empty() && !policy_->MayOvertake(*sequence->group, *window_[0]->group)) break;
    Probe(sequence);
    if (Follows(sequence)) {
      places_kept_ += window_.empty();
      continue;
    }
    window_.push_back(sequence);
    if (static_cast<int32_t>(window_.size()) == limits.size || sequence->num_overtaken >= limits.max_overtakes) break;
  }
  if (window_.empty()) return nullptr;
  Sequence* const head = window_[0];
  if (!limits.by_hits) return head;
  // By insertion: short, stable, and nothing is allocated.
  for (size_t i = 1; i < window_.size(); ++i) {
    for (size_t j = i; j > 0 && window_[j]->probed_hit > window_[j - 1]->probed_hit; --j) {
      std::swap(window_[j], window_[j - 1]);
    }
  }
  return head;
}

// Looks up how much of a waiting sequence the prefix cache holds, and thereby marks it as used.
void Scheduler::Probe(Sequence* sequence) {
  if (sequence->probed_step != 0 && step_ + 1 - sequence->probed_step < kProbeSteps) return;
  sequence->probed_step = step_ + 1;
  sequence->probed_hit = sequence->probed_on_host = 0;
  const bool is_fork = sequence->group->request.fork_of.handle != 0;
  if (!blocks_->prefix_cache_enabled() && !is_fork) return;
  Start(sequence);
  const PrefixMatch match =
      blocks_->MatchPrefix(sequence->keys, sequence->tokens, CacheableTokens(*sequence), probe_table_);
  sequence->probed_hit = match.num_tokens;
  sequence->probed_on_host = match.host_blocks;
  probe_table_.Clear();
  const int32_t forkable = is_fork ? FindForkSource(*sequence).num_tokens : 0;
  if (forkable > sequence->probed_hit) {
    sequence->probed_hit = forkable;
    sequence->probed_on_host = 0;
  }
}

// A place in the batch, if need be at the cost of running work that may be interrupted.
bool Scheduler::HasSlotFor(Sequence* sequence) {
  if (num_running_ + places_kept_ < options_.max_num_seqs) return true;
  if (!AnyInterruptible(*sequence)) return false;
  Sequence* victim = PickVictim(sequence, Eligible::kInterruptible, 0);
  if (victim == nullptr || !MayPreempt()) return false;
  Preempt(victim, PreemptReason::kPlace, sequence);
  CleanUp();
  return true;
}

int32_t Scheduler::BlocksKept() const {
  if (num_running_ == 0) return 0;
  return std::max(0, blocks_->num_usable() - kBlocksWithoutKept) / kBlocksPerKept;
}

// By what was found in the cache last, which saves looking it up in each step that it waits.
bool Scheduler::SurelyLacksBlocks(const Sequence& sequence) const {
  const int32_t known = sequence.tokens.empty() ? sequence.group->prompt_len() : sequence.num_tokens();
  const int32_t found = std::max(0, sequence.probed_hit / blocks_->block_size() - sequence.probed_on_host);
  return blocks_->LeastMissing(known, found) + BlocksKept() > blocks_->num_unused();
}

// The row before a position scores it, and the last row is sampled from: rows that something is still to be given for
// are computed.
int32_t Scheduler::CacheableTokens(const Sequence& sequence) const {
  const SequenceGroup& group = *sequence.group;
  const bool all_scored = group.next_score_position == group.prompt_len();
  return all_scored ? sequence.num_tokens() - 1 : group.next_score_position - 1;
}

// Blocks for all that is known, cached ones first. Some stay unused for those that run already.
bool Scheduler::TryAdmit(Sequence* sequence, bool may_interrupt) {
  Start(sequence);
  const int32_t known = sequence->num_tokens();
  const bool kept = !sequence->table.empty();  // on the host
  const PrefixMatch match = kept ? PrefixMatch{.num_tokens = sequence->table.num_stored()} : TakePrefix(sequence);
  if (blocks_->BlocksMissing(sequence->table, known) + BlocksKept() > blocks_->num_unused() &&
      !(may_interrupt && InterruptForBlocks(sequence))) {
    if (!kept) sequence->table.Clear();
    return false;
  }
  if (!blocks_->Reserve(sequence->table, known, &copies_).ok()) {  // it waits on
    if (!kept) sequence->table.Clear();
    return false;
  }
  sequence->num_computed = sequence->num_planned = match.num_tokens;
  if (observer_ != nullptr) observer_->OnAdmitted(*sequence, match);
  SetState(sequence, SequenceState::kRunning);
  NoteAdmitted(sequence->group, match);
  return true;
}

// Counts a request's first start.
void Scheduler::NoteAdmitted(SequenceGroup* group, const PrefixMatch& match) {
  if (group->admitted) return;
  group->admitted = true;
  group->prefix_match = match;
  group->cached_tokens = match.num_tokens;
  stats_.prompt_tokens += group->prompt_len();
  const bool all_scored = group->next_score_position == group->prompt_len();
  const bool may_hit = all_scored && blocks_->prefix_cache_enabled() && group->request.reads_cache;
  stats_.prefix_query_tokens += may_hit ? group->prompt_len() : 0;
  stats_.prefix_hit_tokens += may_hit ? match.num_tokens : 0;
  admission_rate_.NoteStart(group->prompt_len());
}

// Storage for the whole life of a sequence: only those that were near admission once hold it.
void Scheduler::Start(Sequence* sequence) {
  if (!sequence->tokens.empty()) return;
  const SequenceGroup& group = *sequence->group;
  const int32_t max_blocks = blocks_->BlocksFor(group.max_len);
  sequence->tokens.reserve(group.max_len);
  sequence->tokens.assign(group.request.prompt_ids.begin(), group.request.prompt_ids.end());
  sequence->keys.root = group.request.root_hash;
  sequence->keys.tenant = group.request.tenant;
  sequence->keys.read = group.request.reads_cache;
  sequence->keys.write = group.request.writes_cache;
  sequence->keys.retention = group.request.retention;
  sequence->keys.blocks.reserve(max_blocks);
  sequence->keys.blocks.assign(group.request.prompt_hashes.begin(), group.request.prompt_hashes.end());
  sequence->table.ReserveCapacity(max_blocks);
}

}  // namespace quire
