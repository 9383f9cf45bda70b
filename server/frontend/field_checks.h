#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

// Ranges of request fields. Errors are kInvalidArgument by InvalidField, naming field, value and limit.
namespace quire {

absl::Status CheckInt(const std::string& field, int64_t value, int64_t min, int64_t max);

struct FloatRange {
  float min = 0, max = 0;
  bool min_is_open = false;  // min itself is refused
};
// NaN and infinities are in no range.
absl::Status CheckFloat(const std::string& field, float value, FloatRange range);

// At most `max` bytes of valid UTF-8.
absl::Status CheckBytes(const std::string& field, const std::string& text, int64_t max);
// A name that comes back in headers, logs and metrics: no control characters either.
absl::Status CheckName(const std::string& field, const std::string& name, int64_t max);

}  // namespace quire
