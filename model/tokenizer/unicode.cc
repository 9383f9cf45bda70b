#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdint>

#include "model/tokenizer/unicode_tables.h"
#include "model/tokenizer/utf8.h"

namespace quire {

using unicode_tables::FindRow;
using unicode_tables::kStandIns;
using unicode_tables::StandIn;

std::string_view WithKnownCategories(std::string_view text, std::string* storage) {
  constexpr char32_t kFirst = kStandIns[0].first;
  bool copied = false;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t begin = i;
    const char32_t c = utf8::Decode(text, &i);
    if (c < kFirst) continue;
    const StandIn* row = FindRow(kStandIns, c);
    if (row == nullptr) continue;
    if (!copied) storage->assign(text);
    copied = true;
    std::string bytes;
    utf8::Append(row->stand_in, &bytes);
    storage->replace(begin, i - begin, bytes);
  }
  return copied ? std::string_view(*storage) : text;
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t SizeOfLeadingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    size_t next = size;
    if (!IsWhiteSpace(utf8::Decode(text, &next))) break;
    size = next;
  }
  return size;
}

size_t SizeWithoutTrailingSpace(std::string_view text) {
  size_t size = text.size();
  while (size > 0) {
    size_t last = size - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    size_t end = last;
    if (!IsWhiteSpace(utf8::Decode(text, &end))) break;
    size = last;
  }
  return size;
}

void AppendLowercase(char32_t c, std::string* text) {
  if (const auto* row = FindRow(unicode_tables::kLateLowercase, c); row != nullptr) {
    utf8::Append(row->stand_in + (c - row->first), text);
    return;
  }
  utf8::Append(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), text);
  if (c == 0x130) utf8::Append(0x307, text);  // the one lower case of two characters
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  if (FindRow(unicode_tables::kLatePunctuation, c) != nullptr) return false;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

bool IsWordCharacter(char32_t c) {
  const bool circled_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                              (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (circled_letter || c == 0x200C || c == 0x200D) return true;
  const StandIn* row = FindRow(kStandIns, c);
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(row == nullptr ? c : row->stand_in))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace quire
