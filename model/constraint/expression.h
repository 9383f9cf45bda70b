#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/constraint/char_set.h"

namespace quire::constraint {

// A regular expression over characters, with references to rules: what the parsers of regular expressions, of EBNF and
// of JSON Schema make. A plain tree, as deep as the source nests (ConstraintLimits::max_depth).
struct Expression {
  enum class Kind {
    kText,    // `text`, UTF-8; empty matches the empty text
    kChars,   // one character of `chars`; an empty set matches nothing
    kConcat,  // `parts` in a row
    kChoice,  // one of `parts`; none of them matches nothing
    kRepeat,  // parts[0], from `min` to `max` times
    kRule,    // what rule `rule` matches (not in regular expressions)
    kBegin,   // the begin of the text (in regular expressions only)
    kEnd,     // its end
    kEndOrFinalNewline,
  };
  static constexpr int64_t kUnlimited = -1;

  Kind kind = Kind::kText;
  std::string text;
  CharSet chars;
  std::vector<Expression> parts;
  int64_t min = 0, max = 0;
  int32_t rule = 0;

  static Expression Text(std::string text) {
    Expression e;
    e.text = std::move(text);
    return e;
  }
  static Expression Chars(CharSet chars) {
    Expression e = Of(Kind::kChars);
    e.chars = std::move(chars);
    return e;
  }
  static Expression Concat(std::vector<Expression> parts) { return Of(Kind::kConcat, std::move(parts)); }
  static Expression Choice(std::vector<Expression> parts) { return Of(Kind::kChoice, std::move(parts)); }
  static Expression Repeat(Expression part, int64_t min, int64_t max) {
    Expression e = Of(Kind::kRepeat);
    e.parts.push_back(std::move(part));
    e.min = min;
    e.max = max;
    return e;
  }
  static Expression Rule(int32_t rule) {
    Expression e = Of(Kind::kRule);
    e.rule = rule;
    return e;
  }
  static Expression Of(Kind kind, std::vector<Expression> parts = {}) {
    Expression e;
    e.kind = kind;
    e.parts = std::move(parts);
    return e;
  }
};

}  // namespace quire::constraint
