#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

// The first broken rule of one sequence, or null. `plans`: in flight, the latest of which may hold it: `in_flight`.
const char* BrokenRule(const Sequence& s, bool in_flight, int32_t plans, const BlockManager& blocks) {
  if (s.planned_tokens != 0) return "is planned while no plan is made";
  switch (s.state) {
    case SequenceState::kWaiting:
      if (in_flight) return "does not run and is in flight";
      if (!s.table.empty() && s.table.num_on_host() == s.table.size()) return nullptr;
      [[fallthrough]];
    case SequenceState::kBlocked:
      return s.table.empty() && s.num_planned == 0 && s.num_computed == 0 ? nullptr : "does not run and holds blocks";
    case SequenceState::kFinished:
      return s.table.empty() || in_flight ? nullptr : "is finished and holds blocks";
    case SequenceState::kRunning:
      if (s.rides()) return in_flight && s.num_computed == 0 ? nullptr : "runs without blocks";
      if (in_flight != (s.num_planned > s.num_computed)) return "is in flight and computes nothing, or the reverse";
      if (s.num_uncomputed() < 0) return "is planned too far";
      if (s.foresees_tokens && s.num_planned >= s.num_tokens() + plans) return "is ahead of its tokens";
      if (s.group->beams == nullptr && s.num_uncomputed() == 0 && !in_flight) return "can neither advance nor end";
      if (s.table.size() < blocks.BlocksFor(s.num_planned)) return "has more planned than its blocks hold";
      return s.num_tokens() <= s.group->max_len ? nullptr : "is longer than allowed";
  }
  return "has no state";
}

}  // namespace

absl::Status Scheduler::CheckInvariants() const {
  QUIRE_RETURN_IF_ERROR(blocks_->CheckInvariants());
  int32_t running = 0, waiting = 0, requests_running = 0, requests_waiting = 0, held = 0;
  int64_t waiting_prompt_tokens = 0;
  for (const auto& [handle, group] : groups_) {
    int32_t unfinished = 0, blocked = 0, group_running = 0, group_waiting = 0;
    for (const Sequence& s : group->sequences) {
      if (const char* rule = BrokenRule(s, InFlight(s), num_in_flight(), *blocks_)) {
        return absl::InternalError(absl::StrFormat("sequence %d of request %d %s", s.index, handle, rule));
      }
      unfinished += s.state != SequenceState::kFinished;
      blocked += s.state == SequenceState::kBlocked;
      group_running += s.state == SequenceState::kRunning;
      group_waiting += s.state == SequenceState::kWaiting && !group->held;
    }
    if (unfinished == 0 || unfinished != group->num_unfinished || group_running != group->num_running ||
        unfinished == blocked) {
      return absl::InternalError(absl::StrFormat("request %d: %d unfinished (%d counted), %d running (%d), %d blocked",
                                                 handle, unfinished, group->num_unfinished, group_running,
                                                 group->num_running, blocked));
    }
    held += group->held;
    if (group->held && group_running > 0) {
      return absl::InternalError(absl::StrFormat("request %d is held and runs", handle));
    }
    running += group_running;
    waiting += group_waiting;
    requests_running += group_running > 0;
    if (group_running == 0 && !group->held) {
      ++requests_waiting;
      waiting_prompt_tokens += group->prompt_len();
    }
  }
  for (const auto& group : finished_groups_) {
    for (const Sequence& s : group->sequences) {
      if (s.state != SequenceState::kFinished || (!s.table.empty() && !InFlight(s))) {
        return absl::InternalError(
            absl::StrFormat("sequence %d of ended request %d lives on", s.index, group->request.handle));
      }
    }
  }
  const absl::flat_hash_set<const Sequence*> listed(running_.begin(), running_.end());
  if (running != num_running_ || listed.size() != running_.size() || static_cast<int32_t>(listed.size()) != running ||
      waiting_.size() != waiting || running > options_.max_num_seqs) {
    return absl::InternalError(absl::StrFormat("%d sequences run and %d wait; %d and %d are listed", running, waiting,
                                               running_.size(), waiting_.size()));
  }
  if (held != stats_.requests_held)
    return absl::InternalError(absl::StrFormat("%d requests are held, %d counted", held, stats_.requests_held));
  if (requests_running != stats_.requests_running || requests_waiting != stats_.requests_waiting ||
      waiting_prompt_tokens != stats_.waiting_prompt_tokens) {
    return absl::InternalError(
        absl::StrFormat("%d requests run and %d wait with %d prompt tokens; counted are %d, %d and %d",
                        requests_running, requests_waiting, waiting_prompt_tokens, stats_.requests_running,
                        stats_.requests_waiting, stats_.waiting_prompt_tokens));
  }
  return absl::OkStatus();
}

}  // namespace quire
