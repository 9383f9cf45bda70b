#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "model/tokenizer/unicode.h"
#include "model/tokenizer/unicode_tables.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

using unicode_tables::FindRow;

// A character of the new text, and what it did to the old: 0 stands in the place of one, 1 is inserted, -n stands for
// one and n more vanish after it.
struct Changed {
  char32_t c = 0;
  int change = 0;
};

bool IsInert(char32_t c) { return FindRow(unicode_tables::kInertInNfc, c) != nullptr; }
bool IsInertInCompatibility(char32_t c) { return FindRow(unicode_tables::kInertInNfkc, c) != nullptr; }

int CombiningClass(char32_t c) {
  if (c < 0x300 || IsInert(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void AppendDecomposition(char32_t c, bool compatibility, std::vector<Changed>* out) {
  utf8proc_int32_t parts[20];
  int boundary = 0;
  int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
  if (compatibility && !IsInertInCompatibility(c)) options |= UTF8PROC_COMPAT;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::size(parts),
                                         static_cast<utf8proc_option_t>(options), &boundary);
  if (IsInert(c) || n < 1 || n > static_cast<utf8proc_ssize_t>(std::size(parts))) {
    out->push_back({c, 0});
    return;
  }
  for (utf8proc_ssize_t i = 0; i < n; ++i) out->push_back({static_cast<char32_t>(parts[i]), i == 0 ? 0 : 1});
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
void SortMarks(std::vector<Changed>* text) {
  struct Mark {
    int combining;
    size_t at;
    Changed changed;
    bool operator<(const Mark& other) const {
      return combining != other.combining ? combining < other.combining : at < other.at;
    }
  };
  for (size_t i = 0; i < text->size();) {
    if (CombiningClass((*text)[i].c) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text->size() && CombiningClass((*text)[end].c) != 0) ++end;
    std::vector<Mark> marks;
    for (size_t m = i; m < end; ++m) marks.push_back({CombiningClass((*text)[m].c), m, (*text)[m]});
    std::sort(marks.begin(), marks.end());
    for (size_t m = i; m < end; ++m) (*text)[m] = marks[m - i].changed;
    i = end;
  }
}

void ComposeInPlace(std::vector<Changed>* text) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone;
  size_t out = 0;
  int last_class = 0;  // of the character kept last after the starter; 0: the starter itself is last
  for (size_t i = 0; i < text->size(); ++i) {
    const Changed next = (*text)[i];
    const int combining = CombiningClass(next.c);
    const bool reachable = starter != kNone && (starter + 1 == out || (last_class != 0 && last_class < combining));
    if (reachable) {
      Changed& first = (*text)[starter];
      if (const char32_t composed = Compose(first.c, next.c); composed != 0) {
        first = {composed, first.change + next.change - 1};
        continue;
      }
    }
    if (combining == 0) starter = out;
    last_class = combining;
    (*text)[out++] = next;
  }
  text->resize(out);
}

size_t CharacterSize(std::string_view text, size_t at) {
  size_t end = at;
  utf8::Decode(text, &end);
  return end - at;
}

}  // namespace

void NormalizeUnicode(NormalForm form, AlignedText* text) {
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const std::string_view old = text->text();
  // Nothing below U+0300 changes in NFC, nothing below U+0080 in any form, and that is what most text is made of.
  const uint8_t limit = form == NormalForm::kNfc ? 0xCC : 0x80;
  if (std::all_of(old.begin(), old.end(), [limit](char c) { return static_cast<uint8_t>(c) < limit; })) return;
  std::vector<Changed> points;
  points.reserve(old.size());
  for (size_t i = 0; i < old.size();) AppendDecomposition(utf8::Decode(old, &i), compatibility, &points);
  SortMarks(&points);
  if (compose) ComposeInPlace(&points);
  AlignedText::Rewriter rewriter(text);
  size_t at = 0;  // in the old text: what has been replaced
  std::string bytes;
  for (const Changed& point : points) {
    bytes.clear();
    utf8::Append(point.c, &bytes);
    const size_t anchor = point.change > 0 ? at - 1 : at;  // at 0: Rewriter::kStart
    rewriter.Put(bytes, anchor < old.size() ? anchor : (at == 0 ? anchor : old.size() - 1));
    for (int n = point.change; n <= 0 && at < old.size(); ++n) at += CharacterSize(old, at);
  }
  rewriter.Finish();
}

}  // namespace quire
