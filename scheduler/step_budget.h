#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "scheduler/step_time_model.h"

namespace quire {

// What is left of one step: tokens, and seconds by the step-time model where the step has a bound in time. A value that
// the scheduler keeps; the model outlives it.
class StepBudget {
 public:
  explicit StepBudget(const StepTimeModel* model) : model_(*model) {}

  // `seconds` may be infinite.
  void Reset(int32_t tokens, double seconds);

  int32_t tokens() const { return tokens_; }
  bool timed() const { return timed_; }

  // One token of a running sequence, at `position`; it is taken whatever the time says.
  void TakeRow(int32_t position, bool decode) {
    --tokens_;
    ++given_;
    if (timed_) TakeRowTime(position, decode);
  }
  // Whether such a token fits in the time. True for the first of a step: something always advances.
  bool HasTimeForRow(int32_t position, bool decode) const;
  // What someone had taken and does not need: the tokens. Its time stays taken.
  void Return(int32_t tokens) {
    tokens_ += tokens;
    given_ -= tokens;
  }

  // Takes up to `want` tokens of a chunk behind `start` others; if others want some too, at most half of what is left.
  // The first chunk of a step where nothing else was taken gets some however short the time is: something always
  // advances.
  int32_t TakeChunk(int32_t start, int32_t want, bool others_want);
  // Takes up to `want` rows of drafts, at `position`.
  int32_t TakeDrafts(int32_t position, int32_t want);
  // Prefills get some tokens however short the time is, so that none starves; but not again in the same step.
  void GuaranteeChunk();

  // The part of the time that is not taken once every running sequence decodes: a newcomer must fit in for good.
  // `position`: of the row that it will have. Takes its part, or says no.
  bool TakeStanding(int32_t position);

 private:
  static constexpr int32_t kGuaranteedTokens = 16;

  void TakeRowTime(int32_t position, bool decode);
  double RowSeconds(int32_t position, bool decode) const { return model_.ChunkSeconds(position, 1, decode); }

  const StepTimeModel& model_;
  int32_t tokens_ = 0, given_ = 0;  // left, and taken
  int32_t chunk_tokens_ = 0;        // that chunks may still have: the model does not reach beyond what it has seen
  double seconds_ = 0, standing_seconds_ = 0;
  bool timed_ = false;
};

}  // namespace quire
