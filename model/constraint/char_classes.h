#pragma once

#include <optional>
#include <string_view>

#include "model/constraint/char_set.h"
#include "model/constraint/regex_parser.h"

namespace quire::constraint {

// What \d, \w, \s (by letter 'd', 'w', 's') match in a dialect. Python's are those of Unicode (15, as utf8proc has it):
// \w is str.isalnum and the underscore; ECMAScript's \d and \w are ASCII.
const CharSet& ClassOf(char letter, RegexDialect dialect);

// The characters of a general category by its short name ("L", "Lu"). Nullopt if there is none of that name.
std::optional<CharSet> GeneralCategory(std::string_view name);

}  // namespace quire::constraint
