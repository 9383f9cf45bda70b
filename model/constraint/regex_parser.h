#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/constraint/expression.h"

namespace quire::constraint {

enum class RegexDialect {
  kPython,      // module re on str
  kEcmaScript,  // as JSON Schema's `pattern` has it: 2025, with flag u where that matters, but lenient about escapes
};

// kInvalidArgument with the offset in bytes; for constructs that no automaton has, and those left out, with their name:
// lookaround, backreferences, word boundaries, atomic groups, possessive quantifiers, inline flags. kResourceExhausted
// for groups nested deeper than `max_depth` and for more than 64 KiB. REQUIRES: valid UTF-8.
absl::StatusOr<Expression> ParseRegex(std::string_view pattern, RegexDialect dialect, int64_t max_depth);

}  // namespace quire::constraint
