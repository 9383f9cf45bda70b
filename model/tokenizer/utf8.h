#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// UTF-8 as Unicode defines it (table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF.
namespace quire::utf8 {

// What stands at the start of a non-empty text.
struct Part {
  size_t size = 1;          // bytes: of the character, or of the maximal subpart if it is broken
  bool whole = false;       // a complete character
  bool unfinished = false;  // not whole, but further bytes after the end of the text could make it so
};
Part NextPart(std::string_view text);

// Offset of the first byte that does not belong to a whole character; text.size() if there is none.
size_t ValidPrefix(std::string_view text);
inline bool IsValid(std::string_view text) { return ValidPrefix(text) == text.size(); }

// Appends `bytes` with U+FFFD for each maximal subpart that is no character.
void AppendLossy(std::string_view bytes, std::string* text);

// The character at `offset` of a valid text; advances offset past it.
char32_t Decode(std::string_view text, size_t* offset);
void Append(char32_t code_point, std::string* text);

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace quire::utf8
