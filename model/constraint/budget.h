#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/constraint/constraint.h"

namespace quire::constraint {

// What one compilation may still use. Steps stand for time, so that the same source is always treated alike.
class Budget {
 public:
  explicit Budget(const ConstraintLimits& limits) : limits_(limits) {}

  const ConstraintLimits& limits() const { return limits_; }

  // kResourceExhausted naming the limit, once it is passed.
  absl::Status SpendStates(int64_t count) {
    return (states_ += count) <= limits_.max_states ? SpendSteps(count) : TooMany("max_states", limits_.max_states);
  }
  absl::Status SpendSteps(int64_t count) {
    return (steps_ += count) <= limits_.max_steps ? absl::OkStatus() : TooMany("max_steps", limits_.max_steps);
  }

 private:
  static absl::Status TooMany(const char* limit, int64_t value) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the constraint is too large: it needs more than ", limit, " = ", value));
  }

  ConstraintLimits limits_;
  int64_t states_ = 0, steps_ = 0;
};

}  // namespace quire::constraint
