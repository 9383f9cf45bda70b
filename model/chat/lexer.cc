#include "model/chat/lexer.h"

#include <array>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/string_literal.h"
#include "model/chat/text.h"

namespace quire::jinja {
namespace {

std::string NormalizeNewlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> Run() {
    while (position_ < source_.size()) Root();
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool At(std::string_view what) const { return source_.substr(position_).starts_with(what); }
  bool AtIn(size_t offset, std::string_view what) const {
    return offset <= source_.size() && source_.substr(offset).starts_with(what);
  }

  [[noreturn]] void Error(std::string message) const {
    throw TemplateError(ErrorKind::kSyntax, std::move(message), line_);
  }

  void Emit(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  // Moves to `offset`, counting lines.
  void Advance(size_t offset) {
    for (; position_ < offset; ++position_) line_ += source_[position_] == '\n';
    if (position_ > 0) line_starting_ = source_[position_ - 1] == '\n';
  }

  size_t SkipSpace(size_t offset) const {
    while (offset < source_.size()) {
      size_t next = offset;
      if (!IsSpace(DecodeAt(source_, &next))) break;
      offset = next;
    }
    return offset;
  }

  // The offset after `word` between optional white space, if it stands at `offset` and the tag ends after it.
  std::optional<size_t> Word(size_t offset, std::string_view word) const {
    offset = SkipSpace(offset);
    if (!AtIn(offset, word)) return std::nullopt;
    return SkipSpace(offset + word.size());
  }

  // The offset after the end of a block tag at `offset`: "%}", "-%}" or "+%}", with what trimming takes.
  std::optional<size_t> BlockEnd(size_t offset, std::string_view end) const {
    if (AtIn(offset, "-") && AtIn(offset + 1, end)) return SkipSpace(offset + 1 + end.size());
    if (AtIn(offset, "+") && AtIn(offset + 1, end)) return offset + 1 + end.size();
    if (!AtIn(offset, end)) return std::nullopt;
    offset += end.size();
    return AtIn(offset, "\n") ? offset + 1 : offset;
  }

  // Emits the text up to `end`, where a tag with the given sign begins.
  void Data(size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(position_, end - position_);
    if (sign == '-') {
      text = Strip(text, nullptr, false, true);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && Strip(text.substr(line), nullptr, true, true).empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) Emit(TokenKind::kData, std::string(text));
    Advance(end);
  }

  char SignAt(size_t offset) const { return AtIn(offset, "-") ? '-' : AtIn(offset, "+") ? '+' : '\0'; }

  void Root() {
    size_t tag = position_;
    for (; tag < source_.size(); ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || AtIn(tag, "{{") || AtIn(tag, "{%") || AtIn(tag, "{#")) break;
    }
    if (tag >= source_.size()) {
      Emit(TokenKind::kData, std::string(source_.substr(position_)));
      Advance(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    const size_t inside = tag + 2 + (sign != '\0');
    Data(tag, sign, kind == '{');
    if (kind == '#') {
      Comment(inside);
    } else if (kind == '{') {
      Advance(inside);
      Emit(TokenKind::kVariableBegin, "{{");
      Tag(true);
    } else if (const auto raw = RawBegin(inside); raw.has_value()) {
      Raw(*raw);
    } else {
      Advance(inside);
      Emit(TokenKind::kBlockBegin, "{%");
      Tag(false);
    }
  }

  void Comment(size_t inside) {
    for (size_t end = inside;; ++end) {
      end = source_.find('#', end);
      if (end == std::string_view::npos) Error("Missing end of comment tag");
      if (!AtIn(end, "#}")) continue;
      const bool signed_end = end > inside && (source_[end - 1] == '-' || source_[end - 1] == '+');
      Advance(*BlockEnd(signed_end ? end - 1 : end, "#}"));
      return;
    }
  }

  std::optional<size_t> RawBegin(size_t inside) const {
    const auto word = Word(inside, "raw");
    if (!word.has_value()) return std::nullopt;
    if (AtIn(*word, "-%}")) return SkipSpace(*word + 3);
    if (AtIn(*word, "%}")) return *word + 2;
    return std::nullopt;
  }

  void Raw(size_t body) {
    Advance(body);
    for (size_t tag = body;; ++tag) {
      tag = source_.find("{%", tag);
      if (tag == std::string_view::npos) Error("Missing end of raw directive");
      const char sign = SignAt(tag + 2);
      const auto word = Word(tag + 2 + (sign != '\0'), "endraw");
      if (!word.has_value()) continue;
      const auto end = BlockEnd(*word, "%}");
      if (!end.has_value()) continue;
      Data(tag, sign, false);
      Advance(*end);
      return;
    }
  }

  // The tokens of a tag, up to and with its end. Inside brackets the end is not looked for.
  void Tag(bool is_variable) {
    std::string brackets;
    while (true) {
      if (position_ >= source_.size()) return;  // the parser says what is missing
      if (brackets.empty() && TagEnd(is_variable)) return;
      if (const size_t next = SkipSpace(position_); next != position_) {
        Advance(next);
      } else if (!Number() && !Name() && !StringToken()) {
        Operator(&brackets);
      }
    }
  }

  bool TagEnd(bool is_variable) {
    std::optional<size_t> end;
    if (is_variable) {
      if (At("-}}")) end = SkipSpace(position_ + 3);
      if (At("}}")) end = position_ + 2;
    } else {
      end = BlockEnd(position_, "%}");
    }
    if (!end.has_value()) return false;
    Emit(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, is_variable ? "}}" : "%}");
    Advance(*end);
    return true;
  }

  // Offset after digits for which `is_digit` holds, single underscores between them; `offset` if there is none.
  template <typename IsDigit>
  size_t Digits(size_t offset, IsDigit is_digit, bool underscore_first = false) const {
    size_t end = offset;
    while (true) {
      size_t next = end;
      if ((end > offset || underscore_first) && AtIn(next, "_")) ++next;
      if (next >= source_.size() || !is_digit(source_[next])) return end;
      end = next + 1;
    }
  }

  bool Number() {
    if (!absl::ascii_isdigit(source_[position_])) return false;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    if (!after_dot && Float()) return true;
    return Integer();
  }

  bool Float() {
    const auto digit = [](char c) { return absl::ascii_isdigit(c); };
    size_t end = Digits(position_, digit);
    bool is_float = false;
    if (AtIn(end, ".")) {
      if (const size_t fraction = Digits(end + 1, digit); fraction > end + 1) {
        end = fraction;
        is_float = true;
      }
    }
    if (AtIn(end, "e") || AtIn(end, "E")) {
      const size_t exponent = end + 1 + (SignAt(end + 1) != '\0');
      if (const size_t stop = Digits(exponent, digit); stop > exponent) {
        end = stop;
        is_float = true;
      }
    }
    if (!is_float) return false;
    std::string text;
    for (const char c : source_.substr(position_, end - position_)) {
      if (c != '_') text += c;
    }
    Emit(TokenKind::kFloat, text);
    tokens_.back().floating = std::strtod(text.c_str(), nullptr);
    Advance(end);
    return true;
  }

  bool Integer() {
    int base = 10;
    size_t start = position_;
    size_t end = position_;
    if (source_[position_] == '0' && position_ + 1 < source_.size()) {
      const char mark = absl::ascii_tolower(source_[position_ + 1]);
      base = mark == 'b' ? 2 : mark == 'o' ? 8 : mark == 'x' ? 16 : 10;
    }
    const auto digit = [&base](char c) { return DigitValue(c) < base; };
    if (base != 10) end = Digits(position_ + 2, digit, true);
    if (base != 10 && end > position_ + 2) {
      start = position_ + 2;
    } else {
      base = 10;
      start = position_;
      // Python has no number 012: jinja2 reads two numbers.
      end = source_[position_] == '0' ? Digits(position_, [](char c) { return c == '0'; }) : Digits(position_, digit);
    }
    const std::string digits(source_.substr(start, end - start));
    Emit(TokenKind::kInteger, std::string(source_.substr(position_, end - position_)));
    const auto value = ParseDigits(digits, base);
    if (!value.has_value()) Error(Cat("the number ", digits, " is beyond 127 bits"));
    tokens_.back().integer = *value;
    Advance(end);
    return true;
  }

  bool Name() {
    size_t end = position_;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsWordChar(DecodeAt(source_, &next))) break;
      end = next;
    }
    if (end == position_) return false;
    Emit(TokenKind::kName, std::string(source_.substr(position_, end - position_)));
    Advance(end);
    return true;
  }

  bool StringToken() {
    const char quote = source_[position_];
    if (quote != '\'' && quote != '"') return false;
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size())
      Error(Cat("unexpected char ", quote == '"' ? "'\"'" : "\"'\"", ": the string has no end"));
    Emit(TokenKind::kString, "");
    tokens_.back().text = DecodeStringLiteral(source_.substr(position_ + 1, end - position_ - 1), line_);
    Advance(end + 1);
    return true;
  }

  void Operator(std::string* brackets) {
    constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                             "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                             ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view text : kOperators) {
      if (!At(text)) continue;
      Balance(text[0], brackets);
      Emit(TokenKind::kOperator, std::string(text));
      Advance(position_ + text.size());
      return;
    }
    size_t next = position_;
    DecodeAt(source_, &next);
    Error(Cat("unexpected char '", source_.substr(position_, next - position_), "'"));
  }

  void Balance(char c, std::string* brackets) const {
    if (c == '(') brackets->push_back(')');
    if (c == '[') brackets->push_back(']');
    if (c == '{') brackets->push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets->empty()) Error(Cat("unexpected '", std::string(1, c), "'"));
    if (brackets->back() != c) {
      Error(Cat("unexpected '", std::string(1, c), "', expected '", std::string(1, brackets->back()), "'"));
    }
    brackets->pop_back();
  }

  std::string_view source_;
  size_t position_ = 0;
  int32_t line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  const std::string text = NormalizeNewlines(source);
  return Lexer(text).Run();
}

}  // namespace quire::jinja
