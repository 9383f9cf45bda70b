#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace quire {

// OK if Oniguruma's Ruby syntax and PCRE2 read `pattern` alike, so that one can stand for the other; else
// kUnimplemented naming the first construct that they do not (\w, \h, \b, script properties, set operations, (?m) and
// the like).
absl::Status CheckRegexDialect(std::string_view pattern);

}  // namespace quire
