#include "model/constraint/grammar_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/compile_util.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

class GrammarParser {
 public:
  GrammarParser(std::string_view text, int64_t max_depth) : text_(text), max_depth_(max_depth) {}

  absl::StatusOr<ParsedGrammar> Parse() {
    for (SkipSpace(); at_ < text_.size(); SkipSpace()) {
      const std::string_view name = TakeName();
      if (name.empty()) return Error("a rule's name is expected");
      SkipSpace();
      if (!Take("::=")) return Error(absl::StrCat("'::=' is expected after ", std::string(name)));
      const int32_t rule = RuleOf(name);
      if (rules_[rule].is_defined) return Error(absl::StrCat("rule ", std::string(name), " is defined twice"));
      QUIRE_ASSIGN_OR_RETURN(rules_[rule].expression, Alternatives(0));
      rules_[rule].is_defined = true;
    }
    ParsedGrammar grammar;
    for (Rule& rule : rules_) {
      if (!rule.is_defined) {
        return absl::InvalidArgumentError(
            absl::StrCat("grammar: rule ", std::string(rule.name), " is used but not defined"));
      }
      grammar.rules.push_back(std::move(rule.expression));
    }
    const auto root = numbers_.find("root");
    if (root == numbers_.end()) return absl::InvalidArgumentError("grammar: there is no rule root");
    grammar.root = root->second;
    return grammar;
  }

 private:
  struct Rule {
    std::string_view name;
    bool is_defined = false;
    Expression expression;
  };

  absl::Status Error(const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return absl::InvalidArgumentError(absl::StrCat("grammar, line ", line, ": ", what));
  }

  bool LooksAt(std::string_view prefix) const { return text_.substr(at_, prefix.size()) == prefix; }
  bool Take(std::string_view prefix) {
    if (!LooksAt(prefix)) return false;
    at_ += prefix.size();
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string_view TakeName() {
    const size_t begin = at_;
    const auto fits = [&](char c) {
      return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_' ||
             (at_ > begin && (absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '.'));
    };
    while (at_ < text_.size() && fits(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  int32_t RuleOf(std::string_view name) {
    const auto [it, is_new] = numbers_.try_emplace(name, static_cast<int32_t>(rules_.size()));
    if (is_new) rules_.push_back({name, false, {}});
    return it->second;
  }

  absl::StatusOr<Expression> Alternatives(int64_t depth) {
    if (depth > max_depth_) {
      return absl::ResourceExhaustedError(absl::StrCat("grammar: groups nest deeper than max_depth = ", max_depth_));
    }
    std::vector<Expression> choices;
    do {
      QUIRE_ASSIGN_OR_RETURN(Expression sequence, Sequence(depth));
      choices.push_back(std::move(sequence));
    } while (Take("|"));
    return choices.size() == 1 ? std::move(choices[0]) : Expression::Choice(std::move(choices));
  }

  // Up to '|', ')', the next rule or the end.
  absl::StatusOr<Expression> Sequence(int64_t depth) {
    std::vector<Expression> parts;
    while (true) {
      SkipSpace();
      const size_t begin = at_;
      if (at_ == text_.size() || LooksAt("|") || LooksAt(")")) break;
      Expression item;
      if (const std::string_view name = TakeName(); !name.empty()) {
        const size_t end = at_;
        SkipSpace();
        if (LooksAt("::=")) {
          at_ = begin;
          if (depth > 0) return Error("missing ')'");
          break;
        }
        at_ = end;
        item = Expression::Rule(RuleOf(name));
      } else {
        QUIRE_ASSIGN_OR_RETURN(item, Item(depth));
      }
      QUIRE_ASSIGN_OR_RETURN(item, Repeated(std::move(item)));
      parts.push_back(std::move(item));
    }
    return parts.size() == 1 ? std::move(parts[0]) : Expression::Concat(std::move(parts));
  }

  absl::StatusOr<Expression> Item(int64_t depth) {
    if (Take("\"")) {
      std::string text;
      while (!Take("\"")) {
        QUIRE_ASSIGN_OR_RETURN(const char32_t c, Char());
        utf8::Append(c, &text);
      }
      return Expression::Text(std::move(text));
    }
    if (Take("[")) return Class();
    if (Take(".")) return Expression::Chars(CharSet::All());
    if (Take("(")) {
      QUIRE_ASSIGN_OR_RETURN(Expression inner, Alternatives(depth + 1));
      if (!Take(")")) return Error("missing ')'");
      return inner;
    }
    return Error("an item is expected");
  }

  absl::StatusOr<Expression> Repeated(Expression item) {
    for (int64_t levels = 0;; ++levels) {
      SkipSpace();
      if (levels > 8) return Error("too many repeats of one item");
      if (Take("*")) {
        item = Expression::Repeat(std::move(item), 0, Expression::kUnlimited);
      } else if (Take("+")) {
        item = Expression::Repeat(std::move(item), 1, Expression::kUnlimited);
      } else if (Take("?")) {
        item = Expression::Repeat(std::move(item), 0, 1);
      } else if (Take("{")) {
        const std::optional<int64_t> min = TakeCount();
        const bool comma = Take(",");
        const std::optional<int64_t> max = comma ? TakeCount() : min;
        if (!Take("}") || !min) return Error("a repeat is {n}, {n,} or {n,m}");
        if (max && *max < *min) return Error("a repeat's minimum is above its maximum");
        item = Expression::Repeat(std::move(item), *min, max.value_or(Expression::kUnlimited));
      } else {
        return item;
      }
    }
  }

  std::optional<int64_t> TakeCount() {
    SkipSpace();
    std::optional<int64_t> count;
    for (; at_ < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      count = std::min<int64_t>(kMaxCount, count.value_or(0) * 10 + (text_[at_] - '0'));
    }
    SkipSpace();
    return count;
  }

  absl::StatusOr<Expression> Class() {
    const bool negated = Take("^");
    std::vector<CharSet::Range> ranges;
    while (!Take("]")) {
      QUIRE_ASSIGN_OR_RETURN(const char32_t first, Char());
      char32_t last = first;
      if (LooksAt("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        QUIRE_ASSIGN_OR_RETURN(last, Char());
        if (last < first) return Error("a character range's ends are in the wrong order");
      }
      ranges.push_back({first, last});
    }
    CharSet chars(std::move(ranges));
    return Expression::Chars(negated ? chars.Complement() : std::move(chars));
  }

  // One character of a text or class, which may be escaped.
  absl::StatusOr<char32_t> Char() {
    if (at_ == text_.size() || text_[at_] == '\n') return Error("a text or class does not end in its line");
    if (!Take("\\")) return utf8::Decode(text_, &at_);
    if (at_ == text_.size()) return Error("a backslash at the end");
    const char32_t c = utf8::Decode(text_, &at_);
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
      case 'b':
        return U'\b';
      case 'a':
        return U'\a';
      case 'e':
        return char32_t{0x1B};
      case '0':
        return U'\0';
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      case 'U':
        return Hex(8);
      default:
        break;
    }
    if (c < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(c))) return Error("an unknown escape");
    return c;
  }

  absl::StatusOr<char32_t> Hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (at_ == text_.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at_]))) {
        return Error("an incomplete escape");
      }
      const char c = absl::ascii_tolower(static_cast<unsigned char>(text_[at_]));
      code = code * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return Error("an escape is no character");
    return code;
  }

  std::string_view text_;
  const int64_t max_depth_;
  size_t at_ = 0;
  std::vector<Rule> rules_;
  absl::flat_hash_map<std::string_view, int32_t> numbers_;
};

}  // namespace

absl::StatusOr<ParsedGrammar> ParseGrammar(std::string_view grammar, int64_t max_depth) {
  return GrammarParser(grammar, max_depth).Parse();
}

}  // namespace quire::constraint
