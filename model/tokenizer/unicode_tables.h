#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

// Where the Unicode versions of the libraries differ from the reference's (generate_unicode_tables.py).
namespace quire::unicode_tables {

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

// The row that `c` lies in, null if none. Rows ascend.
template <typename Row, size_t n>
const Row* FindRow(const Row (&rows)[n], char32_t c) {
  const Row* row =
      std::lower_bound(std::begin(rows), std::end(rows), c, [](const Row& r, char32_t v) { return r.last < v; });
  return row != std::end(rows) && row->first <= c ? row : nullptr;
}

}  // namespace quire::unicode_tables
