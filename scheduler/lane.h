#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "scheduler/sequence.h"

namespace quire {

// The order within a lane: the rank that the policy gave, arrival, index. Static while a sequence lives.
struct BeforeInLane {
  bool operator()(const Sequence* a, const Sequence* b) const;
};

// Requests that share one account: those of a tenant under policy `fair`, all requests under any other. Between lanes
// the smaller charge goes first.
struct Lane {
  // Tokens computed for it and expected of what runs, over its weight. Counting the expected ones at once keeps a lane
  // from filling the batch before the first of its tokens is on the account.
  double charge() const { return static_cast<double>(served + committed) / weight; }

  // Output tokens that a sequence is expected to have, from those that ended: at most `max_tokens`.
  int32_t ExpectOutput(int32_t max_tokens) const {
    return std::min(max_tokens, std::max(1, static_cast<int32_t>(mean_output)));
  }
  void NoteOutput(int32_t num_tokens) { mean_output += (num_tokens - mean_output) / 16; }

  std::string tenant;
  double weight = 1;
  int64_t served = 0;        // tokens computed; a lane that comes back is lifted, so that an idle one saves nothing up
  int64_t committed = 0;     // sum of Sequence::committed
  int32_t num_requests = 0;  // live
  int64_t passed_round = 0;  // the latest in which all that was looked at here followed others
  double mean_output = 64;   // tokens
  std::set<Sequence*, BeforeInLane> waiting[2];  // online, offline; without held ones
};

}  // namespace quire
