#include "model/constraint/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

// The method is that of Russ Cox and of Rust's utf8-ranges (public descriptions): cut the range where the length
// changes, then where a trailing part is not full, until the bytes of first and last span a box.
void Split(char32_t first, char32_t last, std::vector<Utf8Sequence>* sequences) {
  for (const char32_t longest : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (first <= longest && longest < last) {
      Split(first, longest, sequences);
      return Split(longest + 1, last, sequences);
    }
  }
  for (int tail = 1; tail <= 3 && last > 0x7F; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      Split(first, first | mask, sequences);
      return Split((first | mask) + 1, last, sequences);
    }
    if ((last & mask) != mask) {
      Split(first, (last & ~mask) - 1, sequences);
      return Split(last & ~mask, last, sequences);
    }
  }
  std::string low, high;
  utf8::Append(first, &low);
  utf8::Append(last, &high);
  Utf8Sequence sequence;
  sequence.size = static_cast<int>(low.size());
  for (int i = 0; i < sequence.size; ++i) {
    sequence.bytes[i] = {static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])};
  }
  sequences->push_back(sequence);
}

}  // namespace

std::vector<Utf8Sequence> Utf8Sequences(char32_t first, char32_t last) {
  std::vector<Utf8Sequence> sequences;
  Split(first, last, &sequences);
  return sequences;
}

}  // namespace quire::constraint
