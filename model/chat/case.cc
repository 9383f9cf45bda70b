#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

// Case mapping and classes of characters.
namespace quire::jinja {
namespace {

struct SpecialCase {
  char32_t c;
  std::string_view upper, title, lower, fold;
};
struct CharRange {
  char32_t first, last;
};
#include "model/chat/case_tables.inc"

template <size_t size>
bool InRanges(const CharRange (&ranges)[size], char32_t c) {
  const auto* range = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                                       [](const CharRange& entry, char32_t wanted) { return entry.last < wanted; });
  return range != std::end(ranges) && range->first <= c;
}

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

const SpecialCase* FindSpecial(char32_t c) {
  const auto* found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                       [](const SpecialCase& entry, char32_t wanted) { return entry.c < wanted; });
  return found != std::end(kSpecialCases) && found->c == c ? found : nullptr;
}

bool IsLowerChar(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL || InRanges(kOtherLower, c); }
bool IsUpperChar(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU || InRanges(kOtherUpper, c); }
bool IsTitleChar(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t c) { return IsLowerChar(c) || IsUpperChar(c) || IsTitleChar(c); }

bool IsAlpha(char32_t c) {
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) { return IsDecimal(c) || InRanges(kOtherDigit, c); }
bool IsNumeric(char32_t c) {
  const auto category = Category(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) || InRanges(kOtherNumeric, c);
}
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c); }

// Characters that do not end a word when the final sigma is looked for.
bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      break;
  }
  constexpr char32_t kMarks[] = {'\'',   '.',    ':',    0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                 0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kMarks), std::end(kMarks), c) != std::end(kMarks);
}

enum class To : uint8_t { kUpper, kTitle, kLower, kFold };

void AppendMapped(char32_t c, To to, std::string* out) {
  if (c < 0x80) {
    const bool lower = c >= 'a' && c <= 'z';
    const bool upper = c >= 'A' && c <= 'Z';
    const bool raise = to == To::kUpper || to == To::kTitle;
    *out += static_cast<char>(lower && raise ? c - 32 : upper && !raise ? c + 32 : c);
    return;
  }
  if (const SpecialCase* special = FindSpecial(c); special != nullptr) {
    const std::string_view texts[] = {special->upper, special->title, special->lower, special->fold};
    out->append(texts[static_cast<size_t>(to)]);
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  if (to == To::kFold) {
    const auto* fold = std::lower_bound(std::begin(kFolds), std::end(kFolds), c,
                                        [](const auto& entry, char32_t wanted) { return entry.first < wanted; });
    if (fold != std::end(kFolds) && fold->first == c) return utf8::Append(fold->second, out);
  }
  utf8proc_int32_t mapped = code;
  if (to == To::kUpper) mapped = utf8proc_toupper(code);
  if (to == To::kTitle) mapped = utf8proc_totitle(code);
  if (to == To::kLower || to == To::kFold) mapped = utf8proc_tolower(code);
  utf8::Append(static_cast<char32_t>(mapped), out);
}

std::vector<char32_t> Decode(std::string_view text) {
  std::vector<char32_t> chars;
  for (size_t i = 0; i < text.size();) chars.push_back(DecodeAt(text, &i));
  return chars;
}

void AppendLower(const std::vector<char32_t>& chars, size_t i, std::string* out) {
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  if (chars[i] != kSigma) return AppendMapped(chars[i], To::kLower, out);
  size_t before = i;
  while (before > 0 && IsCaseIgnorable(chars[before - 1])) --before;
  size_t after = i + 1;
  while (after < chars.size() && IsCaseIgnorable(chars[after])) ++after;
  const bool final = before > 0 && IsCased(chars[before - 1]) && (after == chars.size() || !IsCased(chars[after]));
  utf8::Append(final ? kFinalSigma : 0x3C3, out);
}

bool All(const std::vector<char32_t>& chars, bool (*holds)(char32_t)) {
  return !chars.empty() && std::all_of(chars.begin(), chars.end(), holds);
}

// islower and isupper: something cased, and nothing of the other case.
bool AllOneCase(const std::vector<char32_t>& chars, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool some = false;
  for (const char32_t c : chars) {
    if (other(c) || IsTitleChar(c)) return false;
    some = some || wanted(c);
  }
  return some;
}

bool IsTitled(const std::vector<char32_t>& chars) {
  bool some = false;
  bool after_cased = false;
  for (const char32_t c : chars) {
    if (IsUpperChar(c) || IsTitleChar(c)) {
      if (after_cased) return false;
      after_cased = some = true;
    } else if (IsLowerChar(c)) {
      if (!after_cased) return false;
      some = true;
    } else {
      after_cased = false;
    }
  }
  return some;
}

bool IsIdentifier(const std::vector<char32_t>& chars) {
  if (chars.empty()) return false;
  const auto start = [](char32_t c) { return c == '_' || IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL; };
  const auto inside = [start](char32_t c) {
    const auto category = Category(c);
    return start(c) || category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_PC;
  };
  return start(chars[0]) && std::all_of(chars.begin() + 1, chars.end(), inside);
}

}  // namespace

bool IsWordChar(char32_t c) { return c == '_' || IsAlnum(c); }

bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string Upper(std::string_view text) {
  std::string out;
  for (const char32_t c : Decode(text)) AppendMapped(c, To::kUpper, &out);
  return out;
}

std::string Lower(std::string_view text) {
  const std::vector<char32_t> chars = Decode(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) AppendLower(chars, i, &out);
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  for (const char32_t c : Decode(text)) AppendMapped(c, To::kFold, &out);
  return out;
}

std::string Title(std::string_view text) {
  const std::vector<char32_t> chars = Decode(text);
  std::string out;
  bool after_cased = false;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (after_cased) {
      AppendLower(chars, i, &out);
    } else {
      AppendMapped(chars[i], To::kTitle, &out);
    }
    after_cased = IsCased(chars[i]);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  const std::vector<char32_t> chars = Decode(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (i == 0) {
      AppendMapped(chars[0], To::kTitle, &out);
    } else {
      AppendLower(chars, i, &out);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  const std::vector<char32_t> chars = Decode(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (IsUpperChar(chars[i])) {
      AppendLower(chars, i, &out);
    } else if (IsLowerChar(chars[i])) {
      AppendMapped(chars[i], To::kUpper, &out);
    } else {
      utf8::Append(chars[i], &out);
    }
  }
  return out;
}

std::optional<bool> IsClass(std::string_view method, std::string_view text) {
  const std::vector<char32_t> chars = Decode(text);
  if (method == "isalpha") return All(chars, IsAlpha);
  if (method == "isdigit") return All(chars, IsDigit);
  if (method == "isdecimal") return All(chars, IsDecimal);
  if (method == "isnumeric") return All(chars, IsNumeric);
  if (method == "isalnum") return All(chars, IsAlnum);
  if (method == "isspace") return All(chars, IsSpace);
  if (method == "isprintable") return std::all_of(chars.begin(), chars.end(), IsPrintable);
  if (method == "isascii") return std::all_of(chars.begin(), chars.end(), [](char32_t c) { return c < 0x80; });
  if (method == "islower") return AllOneCase(chars, IsLowerChar, IsUpperChar);
  if (method == "isupper") return AllOneCase(chars, IsUpperChar, IsLowerChar);
  if (method == "istitle") return IsTitled(chars);
  if (method == "isidentifier") return IsIdentifier(chars);
  return std::nullopt;
}

}  // namespace quire::jinja
