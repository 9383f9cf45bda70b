#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/expression.h"

namespace quire::constraint {

struct ParsedGrammar {
  std::vector<Expression> rules;  // by the numbers in them
  int32_t root = 0;
};

// EBNF as llama.cpp's GBNF and xgrammar write it:
//
//     name ::= "text" [a-z] [^"\\] . other-rule ( a | b ) x* x+ x? x{2} x{2,} x{2,5} | next alternative   # comment
//
// Line ends mean nothing: a rule goes on until the next `name ::=`. Escapes in texts and classes: \n \t \r \0 \xHH
// \uHHHH \UHHHHHHHH and a backslash before any character that is no letter or digit. kInvalidArgument with the line and
// what is wrong: also a rule twice, one that is missing, no rule `root`. kResourceExhausted for more than `max_depth`
// levels. REQUIRES: valid UTF-8.
absl::StatusOr<ParsedGrammar> ParseGrammar(std::string_view grammar, int64_t max_depth);

}  // namespace quire::constraint
