#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/constraint/char_automaton.h"
#include "model/constraint/network_builder.h"

namespace quire::constraint {

// What a schema demands of a string's contents.
struct StringDemand {
  int64_t min_length = 0;  // in code points
  std::optional<int64_t> max_length;
  std::vector<std::string> patterns;  // ECMAScript; each must match somewhere
  bool is_free() const { return min_length == 0 && !max_length && patterns.empty(); }
};

// The pattern that stands for a format, anchored. Nullopt for a name that is no format of JSON Schema: an annotation.
// kInvalidArgument naming one of its formats that is not built.
absl::StatusOr<std::optional<std::string>> FormatPattern(const std::string& format);

// The contents as an automaton.
absl::StatusOr<CharDfa> StringDfa(const StringDemand& demand, Budget* budget);

// The string with its quotes. Contents with a pattern are written in the canonical way only, others in any.
// free_char: the rule of DefineFreeJsonChar.
absl::Status AddString(const StringDemand& demand, int32_t free_char, int32_t from, int32_t to,
                       NetworkBuilder* builder);

}  // namespace quire::constraint
