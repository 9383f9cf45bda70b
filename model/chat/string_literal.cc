#include "model/chat/string_literal.h"

#include "absl/strings/str_format.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

namespace quire::jinja {
namespace {

// A backslash before a character that is not ASCII: jinja2 has made the character an escape of its own by then, so
// that the two backslashes become one.
void AppendEscapedAsText(std::string_view text, size_t* position, std::string* out) {
  const char32_t c = DecodeAt(text, position);
  if (c <= 0xFF) {
    absl::StrAppendFormat(out, "\\x%02x", static_cast<uint32_t>(c));
  } else if (c <= 0xFFFF) {
    absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
  } else {
    absl::StrAppendFormat(out, "\\U%08x", static_cast<uint32_t>(c));
  }
}

char32_t HexEscape(std::string_view text, size_t* position, size_t digits, int32_t line) {
  char32_t value = 0;
  for (size_t i = 0; i < digits; ++i, ++*position) {
    const int digit = *position < text.size() ? DigitValue(text[*position]) : 99;
    if (digit >= 16) throw TemplateError(ErrorKind::kSyntax, "a string has a truncated \\x, \\u or \\U escape", line);
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    throw TemplateError(
        ErrorKind::kSyntax,
        absl::StrFormat("a string has the escape of U+%04X, which is no character", static_cast<uint32_t>(value)),
        line);
  }
  return value;
}

char32_t OctalEscape(std::string_view text, size_t* position) {
  char32_t value = 0;
  for (int i = 0; i < 3 && *position < text.size() && text[*position] >= '0' && text[*position] <= '7';
       ++i, ++*position) {
    value = value * 8 + static_cast<char32_t>(text[*position] - '0');
  }
  return value;
}

}  // namespace

std::string DecodeStringLiteral(std::string_view text, int32_t line) {
  constexpr std::string_view kNames = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i++];
      continue;
    }
    const char c = text[++i];
    if (static_cast<uint8_t>(c) >= 0x80) {
      AppendEscapedAsText(text, &i, &out);
    } else if (const size_t name = kNames.find(c); name != std::string_view::npos) {
      out += kMeanings[name];
      ++i;
    } else if (c == '\n') {
      ++i;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++i;
      utf8::Append(HexEscape(text, &i, c == 'x' ? 2 : c == 'u' ? 4 : 8, line), &out);
    } else if (c >= '0' && c <= '7') {
      utf8::Append(OctalEscape(text, &i), &out);
    } else if (c == 'N') {
      throw TemplateError(ErrorKind::kSyntax, "a string names a character by \\N, which is not supported", line);
    } else {
      out += '\\';
      out += c;
      ++i;
    }
  }
  return out;
}

}  // namespace quire::jinja
