#include "model/constraint/regex_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/char_classes.h"
#include "model/constraint/compile_util.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

constexpr size_t kMaxRegexBytes = 64 << 10;
class RegexParser {
 public:
  RegexParser(std::string_view pattern, RegexDialect dialect, int64_t max_depth)
      : text_(pattern), python_(dialect == RegexDialect::kPython), dialect_(dialect), max_depth_(max_depth) {}

  absl::StatusOr<Expression> Parse() {
    QUIRE_ASSIGN_OR_RETURN(Expression expression, Alternatives(0));
    if (at_ < text_.size()) return Error("unbalanced ')'");
    return expression;
  }

 private:
  struct Quantifier {
    int64_t min, max;
  };

  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("regular expression, byte ", at_, ": ", what));
  }
  absl::Status Unsupported(const std::string& what) const { return Error(what + " is not supported"); }

  bool AtEnd() const { return at_ == text_.size(); }
  bool LooksAt(std::string_view prefix) const { return text_.substr(at_, prefix.size()) == prefix; }
  bool Take(std::string_view prefix) {
    if (!LooksAt(prefix)) return false;
    at_ += prefix.size();
    return true;
  }
  char32_t TakeChar() { return utf8::Decode(text_, &at_); }

  absl::StatusOr<Expression> Alternatives(int64_t depth) {
    if (depth > max_depth_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("regular expression: groups nest deeper than max_depth = ", max_depth_));
    }
    std::vector<Expression> choices;
    do {
      QUIRE_ASSIGN_OR_RETURN(Expression sequence, Sequence(depth));
      choices.push_back(std::move(sequence));
    } while (Take("|"));
    return choices.size() == 1 ? std::move(choices[0]) : Expression::Choice(std::move(choices));
  }

  absl::StatusOr<Expression> Sequence(int64_t depth) {
    std::vector<Expression> parts;
    while (!AtEnd() && text_[at_] != '|' && text_[at_] != ')') {
      if (python_ && Take("(?#")) {
        const size_t end = text_.find(')', at_);
        if (end == std::string_view::npos) return Error("unterminated comment");
        at_ = end + 1;
        continue;
      }
      QUIRE_ASSIGN_OR_RETURN(Expression atom, Atom(depth));
      QUIRE_ASSIGN_OR_RETURN(const std::optional<Quantifier> quantifier, TakeQuantifier());
      if (quantifier) {
        if (IsAnchor(atom)) return Error("nothing to repeat");
        atom = Expression::Repeat(std::move(atom), quantifier->min, quantifier->max);
      } else if (IsChar(atom) && !parts.empty() && parts.back().kind == Expression::Kind::kText) {
        utf8::Append(atom.chars.ranges()[0].first, &parts.back().text);
        continue;
      } else if (IsChar(atom)) {
        const char32_t c = atom.chars.ranges()[0].first;
        atom = Expression::Text("");
        utf8::Append(c, &atom.text);
      }
      parts.push_back(std::move(atom));
    }
    return parts.size() == 1 ? std::move(parts[0]) : Expression::Concat(std::move(parts));
  }

  static bool IsAnchor(const Expression& e) {
    return e.kind == Expression::Kind::kBegin || e.kind == Expression::Kind::kEnd ||
           e.kind == Expression::Kind::kEndOrFinalNewline;
  }
  static bool IsChar(const Expression& e) {
    return e.kind == Expression::Kind::kChars && e.chars.ranges().size() == 1 &&
           e.chars.ranges()[0].first == e.chars.ranges()[0].last;
  }
  static Expression Char(char32_t c) { return Expression::Chars(CharSet(c, c)); }

  absl::StatusOr<Expression> Atom(int64_t depth) {
    if (Take("(")) return Group(depth);
    if (Take("[")) {
      QUIRE_ASSIGN_OR_RETURN(CharSet chars, Class());
      return Expression::Chars(std::move(chars));
    }
    if (Take(".")) {
      return Expression::Chars(
          (python_ ? CharSet('\n', '\n') : CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})).Complement());
    }
    if (Take("^")) return Expression::Of(Expression::Kind::kBegin);
    if (Take("$")) return Expression::Of(python_ ? Expression::Kind::kEndOrFinalNewline : Expression::Kind::kEnd);
    if (Take("\\")) return Escape();
    if (LooksAt("*") || LooksAt("+") || LooksAt("?")) return Error("nothing to repeat");
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(const auto quantifier, TakeBraces());
    if (quantifier) {
      at_ = begin;
      return Error("nothing to repeat");
    }
    return Char(TakeChar());
  }

  absl::StatusOr<Expression> Group(int64_t depth) {
    if (LooksAt("?")) {
      if (LooksAt("?=") || LooksAt("?!") || LooksAt("?<=") || LooksAt("?<!")) return Unsupported("lookaround");
      if (LooksAt("?>")) return Unsupported("an atomic group");
      if (LooksAt("?P=")) return Unsupported("a backreference");
      if (LooksAt("?(")) return Unsupported("a conditional group");
      if (Take(python_ ? "?P<" : "?<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos || end == at_) return Error("a group's name is wrong");
        at_ = end + 1;
      } else if (!Take("?:")) {
        return Unsupported("an inline flag or this kind of group");
      }
    }
    QUIRE_ASSIGN_OR_RETURN(Expression expression, Alternatives(depth + 1));
    if (!Take(")")) return Error("missing ')'");
    // Kept apart from single characters, so that no quantifier after it meets an anchor or merges with text.
    std::vector<Expression> parts;
    parts.push_back(std::move(expression));
    return Expression::Concat(std::move(parts));
  }

  absl::StatusOr<std::optional<Quantifier>> TakeQuantifier() {
    std::optional<Quantifier> quantifier;
    if (Take("*")) {
      quantifier = {0, Expression::kUnlimited};
    } else if (Take("+")) {
      quantifier = {1, Expression::kUnlimited};
    } else if (Take("?")) {
      quantifier = {0, 1};
    } else {
      QUIRE_ASSIGN_OR_RETURN(quantifier, TakeBraces());
    }
    if (!quantifier) return quantifier;
    if (Take("?")) {
      // Lazy: the same texts match.
    } else if (LooksAt("+")) {
      return Unsupported("a possessive quantifier");
    }
    const size_t begin = at_;
    QUIRE_ASSIGN_OR_RETURN(const auto second, TakeBraces());
    if (second || LooksAt("*") || LooksAt("+") || LooksAt("?")) {
      at_ = begin;
      return Error("multiple repeat");
    }
    return quantifier;
  }

  // {n}, {n,}, {n,m}, Python's {,m}; anything else that begins with a brace is text.
  absl::StatusOr<std::optional<Quantifier>> TakeBraces() {
    const size_t begin = at_;
    if (!Take("{")) return std::nullopt;
    const std::optional<int64_t> min = TakeCount();
    const bool comma = Take(",");
    const std::optional<int64_t> max = comma ? TakeCount() : min;
    const bool any = min || (python_ && comma);
    if (!Take("}") || !any) {
      at_ = begin;
      return std::nullopt;
    }
    const Quantifier result = {min.value_or(0), max.value_or(Expression::kUnlimited)};
    if (max && *max < result.min) return Error("a repeat's minimum is above its maximum");
    return result;
  }

  std::optional<int64_t> TakeCount() {
    if (AtEnd() || !absl::ascii_isdigit(text_[at_])) return std::nullopt;
    int64_t count = 0;
    for (; !AtEnd() && absl::ascii_isdigit(text_[at_]); ++at_) {
      count = std::min<int64_t>(kMaxCount, count * 10 + (text_[at_] - '0'));
    }
    return count;
  }

  absl::StatusOr<Expression> Escape() {
    if (AtEnd()) return Error("a backslash at the end");
    if (LooksAt("b") || LooksAt("B")) return Unsupported("a word boundary");
    if (python_ && Take("A")) return Expression::Of(Expression::Kind::kBegin);
    if (python_ && Take("Z")) return Expression::Of(Expression::Kind::kEnd);
    if (LooksAt("k")) return Unsupported("a backreference");
    const bool octal = LooksAt("0") || (python_ && IsOctal(at_) && IsOctal(at_ + 1) && IsOctal(at_ + 2));
    if (absl::ascii_isdigit(text_[at_]) && !octal) return Unsupported("a backreference");
    QUIRE_ASSIGN_OR_RETURN(CharSet chars, ClassEscape());
    return Expression::Chars(std::move(chars));
  }

  bool IsOctal(size_t at) const { return at < text_.size() && text_[at] >= '0' && text_[at] <= '7'; }

  // What follows a backslash, inside a class or outside.
  absl::StatusOr<CharSet> ClassEscape() {
    if (AtEnd()) return Error("a backslash at the end");
    const char c = text_[at_];
    switch (c) {
      case 'd':
      case 'w':
      case 's':
        ++at_;
        return ClassOf(c, dialect_);
      case 'D':
      case 'W':
      case 'S':
        ++at_;
        return ClassOf(absl::ascii_tolower(c), dialect_).Complement();
      case 'p':
      case 'P':
        if (!python_) return Property();
        return Error("bad escape");
      default: {
        QUIRE_ASSIGN_OR_RETURN(const char32_t code, CharEscape());
        return CharSet(code, code);
      }
    }
  }

  absl::StatusOr<CharSet> Property() {
    const bool negated = text_[at_++] == 'P';
    const size_t end = text_.find('}', at_);
    if (!Take("{") || end == std::string_view::npos) return Error("\\p wants a name in braces");
    const auto category = GeneralCategory(text_.substr(at_, end - at_));
    if (!category) return Unsupported("a Unicode property other than a general category's short name");
    at_ = end + 1;
    return negated ? category->Complement() : *category;
  }

  absl::StatusOr<char32_t> CharEscape() {
    const size_t begin = at_;
    if (python_ && IsOctal(at_) && (text_[at_] == '0' || (IsOctal(at_ + 1) && IsOctal(at_ + 2)))) {
      char32_t code = 0;
      for (int i = 0; i < 3 && IsOctal(at_); ++i) code = code * 8 + static_cast<char32_t>(text_[at_++] - '0');
      return code <= 0377 ? absl::StatusOr<char32_t>(code) : Error("an octal escape is above 0o377");
    }
    const char32_t c = TakeChar();
    switch (c) {
      case 'n':
        return U'\n';
      case 't':
        return U'\t';
      case 'r':
        return U'\r';
      case 'f':
        return U'\f';
      case 'v':
        return U'\v';
      case 'a':
        if (python_) return U'\a';
        break;
      case 'b':
        return U'\b';  // in a class; outside it was a boundary
      case '0':
        return U'\0';
      case 'c':
        if (!python_ && !AtEnd() && absl::ascii_isalpha(text_[at_])) return static_cast<char32_t>(text_[at_++] & 31);
        break;
      case 'x':
        return Hex(2);
      case 'u':
        return Unicode();
      case 'U':
        if (python_) return Hex(8);
        break;
      default:
        break;
    }
    if (c < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      at_ = begin;
      return Error("bad escape");
    }
    return c;
  }

  absl::StatusOr<char32_t> Unicode() {
    if (!python_ && Take("{")) {
      char32_t code = 0;
      for (; !AtEnd() && absl::ascii_isxdigit(text_[at_]) && code <= 0x10FFFF; ++at_) code = code * 16 + Digit();
      return Take("}") && code <= 0x10FFFF ? absl::StatusOr<char32_t>(code) : Error("bad escape \\u{}");
    }
    QUIRE_ASSIGN_OR_RETURN(const char32_t code, Hex(4));
    if (code < 0xD800 || code > 0xDFFF) return code;
    const size_t begin = at_;
    if (!python_ && code < 0xDC00 && Take("\\u")) {
      QUIRE_ASSIGN_OR_RETURN(const char32_t low, Hex(4));
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      at_ = begin;
    }
    return Error("a lone surrogate");
  }

  char32_t Digit() const {
    const char c = absl::ascii_tolower(text_[at_]);
    return static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }

  absl::StatusOr<char32_t> Hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (AtEnd() || !absl::ascii_isxdigit(text_[at_])) return Error("an incomplete escape");
      code = code * 16 + Digit();
    }
    return code <= 0x10FFFF ? absl::StatusOr<char32_t>(code) : Error("an escape is beyond U+10FFFF");
  }

  // After the opening bracket.
  absl::StatusOr<CharSet> Class() {
    const bool negated = Take("^");
    std::vector<CharSet::Range> ranges;
    for (bool first = true; first || !LooksAt("]"); first = false) {
      if (AtEnd()) return Error("unterminated character class");
      if (!python_ && LooksAt("]")) break;
      QUIRE_ASSIGN_OR_RETURN(const CharSet low, ClassMember());
      if (!LooksAt("-") || at_ + 1 >= text_.size() || text_[at_ + 1] == ']') {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
        continue;
      }
      ++at_;
      QUIRE_ASSIGN_OR_RETURN(const CharSet high, ClassMember());
      const bool chars = low.ranges().size() == 1 && high.ranges().size() == 1 &&
                         low.ranges()[0].first == low.ranges()[0].last &&
                         high.ranges()[0].first == high.ranges()[0].last;
      if (!chars || low.ranges()[0].first > high.ranges()[0].first) return Error("bad character range");
      ranges.push_back({low.ranges()[0].first, high.ranges()[0].first});
    }
    if (!Take("]")) return Error("unterminated character class");
    CharSet chars(std::move(ranges));
    return negated ? chars.Complement() : chars;
  }

  absl::StatusOr<CharSet> ClassMember() {
    if (AtEnd()) return Error("unterminated character class");
    if (Take("\\")) {
      if (!AtEnd() && absl::ascii_isdigit(text_[at_]) && !python_ && text_[at_] != '0') return Error("bad escape");
      return ClassEscape();
    }
    const char32_t c = TakeChar();
    return CharSet(c, c);
  }

  std::string_view text_;
  const bool python_;
  const RegexDialect dialect_;
  const int64_t max_depth_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<Expression> ParseRegex(std::string_view pattern, RegexDialect dialect, int64_t max_depth) {
  if (pattern.size() > kMaxRegexBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("regular expression: it has ", pattern.size(),
                                                     " bytes, more than max_regex_bytes = ", kMaxRegexBytes));
  }
  return RegexParser(pattern, dialect, max_depth).Parse();
}

}  // namespace quire::constraint
