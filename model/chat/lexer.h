#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/value.h"

namespace quire::jinja {

enum class TokenKind : uint8_t {
  kData,           // text between tags, as it is printed
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // decoded
  kOperator,  // text holds it
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  Int integer = 0;      // kInteger
  double floating = 0;  // kFloat
  int32_t line = 1;
};

// The tokens of a template (valid UTF-8), the last of kind kEnd, with jinja2's settings for chat templates: trim_blocks
// and lstrip_blocks on, one newline at the very end dropped, all newlines read as \n. Comments are left out. Throws
// TemplateError.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace quire::jinja
