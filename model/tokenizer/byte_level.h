#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// GPT-2's alphabet: each byte is one printable character. Bytes that are printable in Latin-1 are themselves, the other
// 68 are U+0100 and up in order.
namespace quire::byte_level {

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Appends the spelling of `bytes` in the alphabet.
void AppendSpelling(std::string_view bytes, std::string* spelling);

// How many bytes of UTF-8 the spelling of `byte` has: 1 or 2.
size_t SpelledSize(char byte);

// Appends the bytes that `spelling`, valid UTF-8, spells; false if it has a character outside the alphabet.
bool AppendBytes(std::string_view spelling, std::string* bytes);

// The bytes that a token spells. One with any character outside the alphabet stands for itself. `spelling` must be
// valid UTF-8.
std::string BytesOf(std::string_view spelling);

}  // namespace quire::byte_level
