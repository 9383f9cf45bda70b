#include "scheduler/step_budget.h"

#include <cmath>

namespace quire {

void StepBudget::Reset(int32_t tokens, double seconds) {
  tokens_ = chunk_tokens_ = tokens;
  given_ = 0;
  timed_ = std::isfinite(seconds);
  if (!timed_) return;
  seconds_ = standing_seconds_ = seconds - model_.PredictHigh({});
  chunk_tokens_ = std::min(tokens, model_.trusted_chunk());
}

void StepBudget::TakeRowTime(int32_t position, bool decode) {
  seconds_ -= RowSeconds(position, decode);
  standing_seconds_ -= RowSeconds(position, true);
}

bool StepBudget::HasTimeForRow(int32_t position, bool decode) const {
  return !timed_ || given_ == 0 || RowSeconds(position, decode) <= seconds_;
}

int32_t StepBudget::TakeChunk(int32_t start, int32_t want, bool others_want) {
  const auto share = [others_want](int32_t all) { return others_want ? (all + 1) / 2 : all; };
  int32_t take = std::min(want, share(tokens_));
  if (timed_) {
    const int32_t least = given_ == 0 ? std::min(take, kGuaranteedTokens) : 0;
    take = std::min(take, share(chunk_tokens_));
    take = std::max(least, model_.Fit(others_want ? seconds_ / 2 : seconds_, start, take));
    seconds_ -= model_.ChunkSeconds(start, take, false);
    chunk_tokens_ -= take;
  }
  tokens_ -= take;
  given_ += take;
  return take;
}

int32_t StepBudget::TakeDrafts(int32_t position, int32_t want) {
  int32_t take = std::min(want, tokens_);
  if (timed_) {
    const double row = RowSeconds(position, true);
    while (take > 0 && take * row > seconds_) --take;
    seconds_ -= take * row;
  }
  tokens_ -= take;
  given_ += take;
  return take;
}

void StepBudget::GuaranteeChunk() {
  if (timed_) seconds_ = std::max(seconds_, model_.ChunkSeconds(0, kGuaranteedTokens, false));
}

bool StepBudget::TakeStanding(int32_t position) {
  if (!timed_) return true;
  const double row = RowSeconds(position, true);
  if (row > standing_seconds_) return false;
  standing_seconds_ -= row;
  return true;
}

}  // namespace quire
