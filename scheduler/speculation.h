#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/ngram_finder.h"

namespace quire {

// What one sequence drafts: the tokens that followed the latest earlier occurrence of its last few ones (prompt
// look-up), as many as are likely enough to be accepted. A value of the scheduler; allocates in the constructor only.
//
// It learns the chance that a draft is accepted where all before it were. Where drafts do not pay it rests, and then
// tries a single one: after 32 tokens, after twice as many each time that one is refused, at most 512.
class Speculation {
 public:
  // `max_drafts`: of a step, >= 1. `max_len`: tokens that the sequence may have.
  Speculation(int32_t max_drafts, int32_t max_len);

  // `tokens`: the sequence's, which begin with those of the call before. Drafts what may follow them; returns how many
  // tokens that are. A draft is worth its row if its chance to be accepted is at least `least_chance`.
  int32_t Propose(absl::Span<const int32_t> tokens, double least_chance);

  // The tokens of the latest Propose, and the drafts behind them.
  absl::Span<const int32_t> text() const { return text_; }
  int32_t draft(int32_t index) const { return text_[num_known_ + index]; }

  // So many drafts of the latest Propose were tried, >= 1, and so many of these were right.
  void Learn(int32_t num_tried, int32_t num_accepted);

 private:
  static constexpr int32_t kShortestRest = 32, kLongestRest = 512;  // tokens

  // How many drafts are worth a row each.
  int32_t Length(double least_chance) const;

  const int32_t max_drafts_, max_len_;
  NgramFinder finder_;
  std::vector<int32_t> text_;
  int32_t num_known_ = 0;  // tokens in text_ that are no drafts
  double chance_ = 0.5;
  int32_t rest_ = kShortestRest;         // how long it rests next
  int32_t rests_until_ = kShortestRest;  // tokens of the sequence
};

}  // namespace quire
