#pragma once

#include <string>
#include <string_view>

#include "model/tokenizer/aligned_text.h"

// The places where PCRE2 10.42 (Unicode 14) and utf8proc differ from what Hugging Face's `tokenizers` uses: Unicode 16
// categories in regular expressions, Unicode 9 in NFC. The tables come from generate_unicode_tables.py.
namespace quire {

// `text` with each character whose general category is newer than PCRE2's tables, and U+180E (no white space), replaced
// by one of the right category and the same number of bytes: offsets stay. Returns `text` itself if there is none, else
// a view of *storage. `text` must be valid UTF-8.
std::string_view WithKnownCategories(std::string_view text, std::string* storage);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Normal forms (Unicode Standard Annex 15) as of Unicode 9, in linear time but for the sorting of long runs of marks.
// A character that several became stands for the first of them alone, as the reference has it.
void NormalizeUnicode(NormalForm form, AlignedText* text);

// Appends the lower case of `c`, whatever stands around it.
void AppendLowercase(char32_t c, std::string* text);

// The property White_Space.
bool IsWhiteSpace(char32_t c);

// Length of the white space at the start of valid UTF-8, and of the text without that at its end.
size_t SizeOfLeadingSpace(std::string_view text);
size_t SizeWithoutTrailingSpace(std::string_view text);

// General category P as of Unicode 8, or ASCII punctuation, `$+<=>^`|~` among it.
bool IsPunctuation(char32_t c);

// Unicode's word characters (Technical Standard 18, \w): alphabetic, marks, decimal digits, connectors, joiners.
bool IsWordCharacter(char32_t c);

}  // namespace quire
