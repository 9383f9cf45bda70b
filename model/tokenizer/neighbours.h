#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace quire {

// Which characters may stand next to each other inside one token. Where two never do, no merge crosses, and the text
// before is tokenised without a look at the text after. May say "together" too often, never too seldom.
// Immutable once filled, safe to use from many threads at once.
class Neighbours {
 public:
  // Room for so many pairs without too many false answers.
  void Reserve(size_t pairs);
  // `token` is valid UTF-8, as all texts here.
  void AddToken(std::string_view token);
  // Characters that were never named may stand next to any.
  void AddCharacter(char32_t c);

  // Where the stretch that begins at `begin` of `text` ends: at the next place that no token crosses.
  size_t EndOfStretch(std::string_view text, size_t begin) const;

 private:
  size_t Slot(char32_t left, char32_t right) const;
  bool IsKnown(char32_t c) const { return known_[c / 64] >> (c % 64) & 1; }

  std::vector<uint64_t> known_;
  std::vector<uint64_t> pairs_;  // a bit a hashed pair; a power of two of them
};

}  // namespace quire
