#include "model/constraint/char_set.h"

#include <algorithm>

namespace quire::constraint {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF, kLastChar = 0x10FFFF;

}  // namespace

CharSet::CharSet(std::vector<Range> ranges) {
  std::vector<Range> scalars;
  scalars.reserve(ranges.size());
  for (Range range : ranges) {
    range.last = std::min(range.last, kLastChar);
    if (range.first < kFirstSurrogate)
      scalars.push_back({range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1)});
    if (range.last > kLastSurrogate)
      scalars.push_back({std::max<char32_t>(range.first, kLastSurrogate + 1), range.last});
  }
  std::sort(scalars.begin(), scalars.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : scalars) {
    if (range.first > range.last) continue;
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharSet CharSet::Complement() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastChar) gaps.push_back({next, kLastChar});
  return CharSet(std::move(gaps));
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::Intersection(const CharSet& other) const {
  std::vector<Range> common;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) common.push_back({first, last});
    (a->last < b->last ? a : b)++;
  }
  return CharSet(std::move(common));
}

bool CharSet::Contains(char32_t c) const {
  auto it = std::upper_bound(ranges_.begin(), ranges_.end(), c, [](char32_t x, const Range& r) { return x < r.first; });
  return it != ranges_.begin() && c <= (it - 1)->last;
}

}  // namespace quire::constraint
