#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace quire::constraint {

// A set of Unicode scalar values: sorted ranges that neither touch nor overlap, without surrogates.
class CharSet {
 public:
  struct Range {
    char32_t first = 0, last = 0;  // both included
    bool operator==(const Range& other) const { return first == other.first && last == other.last; }
    template <typename H>
    friend H AbslHashValue(H h, const Range& range) {
      return H::combine(std::move(h), static_cast<uint32_t>(range.first), static_cast<uint32_t>(range.last));
    }
  };

  CharSet() = default;
  CharSet(char32_t first, char32_t last) : CharSet(std::vector<Range>{{first, last}}) {}
  // Ranges in any order; they may overlap.
  explicit CharSet(std::vector<Range> ranges);

  static CharSet All() { return CharSet(0, 0x10FFFF); }

  CharSet Complement() const;
  CharSet Union(const CharSet& other) const;
  CharSet Intersection(const CharSet& other) const;
  CharSet Minus(const CharSet& other) const { return Intersection(other.Complement()); }
  bool Contains(char32_t c) const;

  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CharSet& other) const { return ranges_ == other.ranges_; }
  template <typename H>
  friend H AbslHashValue(H h, const CharSet& set) {
    return H::combine(std::move(h), set.ranges_);
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace quire::constraint
