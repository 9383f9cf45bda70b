#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace quire {

// Where a text has said the same before: it knows for each three tokens in a row where they stood last.
//
// Exact: what it finds depends on which tokens are equal and on nothing else, so that a replay with other ids finds the
// same. Tokens are hashed with a key of the process: no text makes them collide. A look-up costs O(1), a token O(1)
// once. Memory: 8 to 16 bytes for each of `max_tokens`, at most 512 KiB; three tokens that are new once this is full
// are not remembered. Allocates in the constructor only. Not thread-safe.
class NgramFinder {
 public:
  static constexpr int32_t kSize = 3;

  // `max_tokens`: of the longest text, >= 0.
  explicit NgramFinder(int32_t max_tokens);

  // The position behind the latest earlier occurrence of the last kSize tokens, in [kSize, text.size()); -1: there is
  // none. `text` begins with what it was in the call before.
  int32_t Find(absl::Span<const int32_t> text);

 private:
  static constexpr int32_t kMaxTokens = 1 << 16;

  // The slot of the kSize tokens that end before `end`: theirs, or an empty one.
  size_t SlotOf(absl::Span<const int32_t> text, int32_t end) const;

  std::vector<int32_t> ends_;  // hash table with open addressing: the position behind the latest occurrence; 0: empty
  int32_t num_used_ = 0;       // slots, at most half of them
  int32_t num_known_ = kSize - 1;  // all occurrences that end before this position, or at it, are in the table
};

}  // namespace quire
