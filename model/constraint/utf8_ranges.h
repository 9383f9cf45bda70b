#pragma once

#include <cstdint>
#include <vector>

namespace quire::constraint {

// UTF-8 sequences of one length whose bytes at each place are a range, each combination included.
struct Utf8Sequence {
  struct Bytes {
    uint8_t first = 0, last = 0;  // both included
  };
  int size = 0;
  Bytes bytes[4];
};

// Exactly the encodings of first to last. REQUIRES: first <= last, no surrogate between them.
std::vector<Utf8Sequence> Utf8Sequences(char32_t first, char32_t last);

}  // namespace quire::constraint
