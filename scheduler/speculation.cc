#include "scheduler/speculation.h"

#include <algorithm>

namespace quire {
namespace {

// How much of the way to 1, and of the chance itself, is left after a draft was accepted or refused.
constexpr double kLeftAccepted = 0.7, kLeftRefused = 0.6;

}  // namespace

Speculation::Speculation(int32_t max_drafts, int32_t max_len)
    : max_drafts_(max_drafts), max_len_(max_len), finder_(max_len) {
  text_.reserve(max_len);
}

int32_t Speculation::Length(double least_chance) const {
  int32_t length = 0;
  for (double chance = chance_; length < max_drafts_ && chance >= least_chance; chance *= chance_) ++length;
  return length;
}

int32_t Speculation::Propose(absl::Span<const int32_t> tokens, double least_chance) {
  text_.resize(num_known_);
  text_.insert(text_.end(), tokens.begin() + num_known_, tokens.end());
  num_known_ = static_cast<int32_t>(tokens.size());
  int32_t length = Length(least_chance);
  if (length == 0 && num_known_ >= rests_until_) length = 1;
  length = std::min(length, max_len_ - num_known_ - 1);  // the last token is sampled behind all drafts
  if (length <= 0) return 0;
  const int32_t from = finder_.Find(tokens);
  if (from < 0) return 0;
  for (int32_t i = 0; i < length; ++i) text_.push_back(text_[from + i]);  // perhaps drafts of this one
  return length;
}

void Speculation::Learn(int32_t num_tried, int32_t num_accepted) {
  for (int32_t i = 0; i < num_accepted; ++i) chance_ = 1 - kLeftAccepted * (1 - chance_);
  if (num_accepted < num_tried) chance_ *= kLeftRefused;
  rest_ = num_accepted > 0 ? kShortestRest : std::min(2 * rest_, kLongestRest);
  rests_until_ = num_known_ + num_accepted + rest_;
}

}  // namespace quire
