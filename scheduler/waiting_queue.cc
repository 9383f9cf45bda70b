#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <tuple>

namespace quire {

bool BeforeInLane::operator()(const Sequence* a, const Sequence* b) const {
  const SequenceGroup &ga = *a->group, &gb = *b->group;
  return std::tie(ga.rank, ga.arrival_number, a->index) < std::tie(gb.rank, gb.arrival_number, b->index);
}

void WaitingQueue::Insert(Sequence* sequence) {
  const SequenceGroup& group = *sequence->group;
  Lane* lane = group.lane;
  if (lane->waiting[0].empty() && lane->waiting[1].empty()) lanes_.push_back(lane);
  lane->waiting[group.offline].insert(sequence);
  ++size_;
  num_online_ += !group.offline;
}

void WaitingQueue::Erase(Sequence* sequence) {
  const SequenceGroup& group = *sequence->group;
  Lane* lane = group.lane;
  lane->waiting[group.offline].erase(sequence);
  if (lane->waiting[0].empty() && lane->waiting[1].empty()) std::erase(lanes_, lane);
  --size_;
  num_online_ -= !group.offline;
}

Lane* WaitingQueue::FirstLane(bool offline, int64_t without_passed) const {
  Lane* best = nullptr;
  for (Lane* lane : lanes_) {
    if (lane->waiting[offline].empty() || lane->passed_round == without_passed) continue;
    if (best == nullptr || lane->charge() < best->charge() ||
        (lane->charge() == best->charge() &&
         BeforeInLane()(*lane->waiting[offline].begin(), *best->waiting[offline].begin()))) {
      best = lane;
    }
  }
  return best;
}

Sequence* WaitingQueue::First() const {
  for (const bool offline : {false, true}) {
    if (Lane* lane = FirstLane(offline)) return *lane->waiting[offline].begin();
  }
  return nullptr;
}

}  // namespace quire
