#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/lane.h"
#include "scheduler/sequence_group.h"

namespace quire {

// The sequences that wait and are not held, by lane and class. Owned by the scheduler; lanes outlive their sequences.
class WaitingQueue {
 public:
  void Insert(Sequence* sequence);
  void Erase(Sequence* sequence);

  bool empty() const { return size_ == 0; }
  bool has_online() const { return num_online_ > 0; }
  int32_t size() const { return size_; }

  // The lane of that class with the smallest charge (then the first in rank), or null; those passed over in round
  // `without_passed` are left out. O(lanes with waiting work).
  Lane* FirstLane(bool offline, int64_t without_passed = -1) const;
  // The first sequence of all, online before offline, or null.
  Sequence* First() const;

 private:
  std::vector<Lane*> lanes_;  // those that hold some
  int32_t size_ = 0, num_online_ = 0;
};

}  // namespace quire
