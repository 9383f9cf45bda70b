#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/value.h"

// Python's str on valid UTF-8: positions and lengths count code points. Case mapping and character classes follow
// Unicode through utf8proc, with what its simple mappings lack in case_tables.inc.
namespace quire::jinja {

char32_t DecodeAt(std::string_view text, size_t* offset);
int64_t CountChars(std::string_view text);
// Byte offset of the character at `index`, counted from `from`; text.size() beyond the end.
size_t OffsetOf(std::string_view text, int64_t index, size_t from = 0);
std::vector<std::string> Chars(std::string_view text);

bool IsSpace(char32_t c);
bool IsWordChar(char32_t c);   // \w: letters, numbers and the underscore
bool IsPrintable(char32_t c);  // as repr decides
int DigitValue(char c);        // of digits and letters; 99 for others

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
std::string Title(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

// The tests isalpha, isdigit, ... by their Python names; nullopt for an unknown name.
std::optional<bool> IsClass(std::string_view method, std::string_view text);

// Characters to strip, or null for white space.
std::string_view Strip(std::string_view text, const std::string* chars, bool left, bool right);
// At most `max_splits` cuts, or any number if negative. A null separator means runs of white space.
std::vector<std::string> Split(std::string_view text, const std::string* separator, int64_t max_splits,
                               bool from_right);
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);
int64_t CountOf(std::string_view text, std::string_view wanted);

// HTML: & < > ' " replaced.
std::string Escape(std::string_view text);

std::optional<Int> ParseDigits(std::string_view digits, int base);  // all digits of the base; nullopt beyond 127 bits
// int(text, base) and float(text): surrounding white space, sign, underscores. Nullopt where Python raises ValueError.
std::optional<Int> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

std::string IntText(Int value, int base = 10);
std::string FloatText(double value);  // repr: the shortest that reads back

}  // namespace quire::jinja
