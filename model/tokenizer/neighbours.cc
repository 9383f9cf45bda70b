#include "model/tokenizer/neighbours.h"

#include <bit>

#include "model/tokenizer/utf8.h"

namespace quire {

void Neighbours::Reserve(size_t pairs) {
  constexpr size_t kBitsAPair = 16;
  known_.assign(0x110000 / 64, 0);
  pairs_.assign(std::bit_ceil(pairs * kBitsAPair / 64 + 1), 0);
}

size_t Neighbours::Slot(char32_t left, char32_t right) const {
  const uint64_t mixed = (static_cast<uint64_t>(left) << 21 | right) * 0x9E3779B97F4A7C15u;
  return (mixed >> 32) & (pairs_.size() * 64 - 1);
}

void Neighbours::AddCharacter(char32_t c) { known_[c / 64] |= uint64_t{1} << (c % 64); }

void Neighbours::AddToken(std::string_view token) {
  if (token.empty()) return;
  size_t i = 0;
  char32_t left = utf8::Decode(token, &i);
  while (i < token.size()) {
    const char32_t right = utf8::Decode(token, &i);
    const size_t slot = Slot(left, right);
    pairs_[slot / 64] |= uint64_t{1} << (slot % 64);
    left = right;
  }
}

size_t Neighbours::EndOfStretch(std::string_view text, size_t begin) const {
  size_t i = begin;
  char32_t left = utf8::Decode(text, &i);
  bool left_known = IsKnown(left);
  while (i < text.size()) {
    const size_t end = i;
    const char32_t right = utf8::Decode(text, &i);
    const bool right_known = IsKnown(right);
    if (left_known && right_known) {
      const size_t slot = Slot(left, right);
      if ((pairs_[slot / 64] >> (slot % 64) & 1) == 0) return end;
    }
    left = right;
    left_known = right_known;
  }
  return text.size();
}

}  // namespace quire
