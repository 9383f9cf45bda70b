#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire::jinja {

// The text between the quotes of a template's string, with Python's escapes decoded as its unicode-escape codec does.
// Throws a syntax error at `line` for broken escapes and lone surrogates.
std::string DecodeStringLiteral(std::string_view text, int32_t line);

}  // namespace quire::jinja
