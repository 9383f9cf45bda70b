#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <vector>

#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

struct StandIn {
  char32_t first;
  char32_t last;
  char32_t stand_in;
};

#include "model/tokenizer/unicode_tables.inc"

template <typename Row, size_t n>
const Row* FindRow(const Row (&rows)[n], char32_t c) {
  const Row* row =
      std::lower_bound(std::begin(rows), std::end(rows), c, [](const Row& r, char32_t v) { return r.last < v; });
  return row != std::end(rows) && row->first <= c ? row : nullptr;
}

bool IsInert(char32_t c) { return FindRow(kInertInNfc, c) != nullptr; }

int CombiningClass(char32_t c) {
  if (c < 0x300 || IsInert(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void AppendDecomposition(char32_t c, std::u32string* out) {
  utf8proc_int32_t parts[8];
  int boundary = 0;
  const auto n =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::size(parts),
                              static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
  if (IsInert(c) || n < 1 || n > static_cast<utf8proc_ssize_t>(std::size(parts))) {
    out->push_back(c);
  } else {
    out->append(parts, parts + n);
  }
}

// The character that the pair composes to; 0 if none.
char32_t Compose(char32_t first, char32_t second) {
  constexpr uint16_t kNever = UINT16_MAX;
  const bool jamo = second >= 0x1161 && second <= 0x11C2;  // composed by rule, not by table
  if (!jamo && utf8proc_get_property(static_cast<utf8proc_int32_t>(second))->comb_index == kNever) return 0;
  if (IsInert(first) || IsInert(second)) return 0;
  utf8proc_int32_t pair[3] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second), 0};
  const auto n = utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return n == 1 ? static_cast<char32_t>(pair[0]) : 0;
}

// Canonical ordering: each run of marks by combining class, equal ones as they came.
void SortMarks(std::u32string* text) {
  for (size_t i = 0; i < text->size();) {
    if (CombiningClass((*text)[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text->size() && CombiningClass((*text)[end]) != 0) ++end;
    std::vector<std::tuple<int, size_t, char32_t>> marks;
    for (size_t m = i; m < end; ++m) marks.emplace_back(CombiningClass((*text)[m]), m, (*text)[m]);
    std::sort(marks.begin(), marks.end());
    for (size_t m = i; m < end; ++m) (*text)[m] = std::get<char32_t>(marks[m - i]);
    i = end;
  }
}

void ComposeInPlace(std::u32string* text) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone;
  size_t out = 0;
  int last_class = 0;  // of the character kept last after the starter; 0: the starter itself is last
  for (const char32_t c : std::u32string(*text)) {
    const int combining = CombiningClass(c);
    const bool reachable = starter != kNone && (starter + 1 == out || (last_class != 0 && last_class < combining));
    if (reachable) {
      if (const char32_t composed = Compose((*text)[starter], c); composed != 0) {
        (*text)[starter] = composed;
        continue;
      }
    }
    if (combining == 0) starter = out;
    last_class = combining;
    (*text)[out++] = c;
  }
  text->resize(out);
}

}  // namespace

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

std::string NormalizeNfc(std::string_view text) {
  // Nothing below U+0300 changes, and that is what most text is made of.
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
  if (plain) return std::string(text);
  std::u32string points;
  points.reserve(text.size());
  for (size_t i = 0; i < text.size();) AppendDecomposition(utf8::Decode(text, &i), &points);
  SortMarks(&points);
  ComposeInPlace(&points);
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : points) utf8::Append(c, &out);
  return out;
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
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
