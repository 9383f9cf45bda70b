#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace quire {

// A list of stop strings prepared for matching (Knuth, Morris and Pratt's failure function of each). Immutable.
class StopStrings {
 public:
  // None of them empty. They are copied.
  explicit StopStrings(absl::Span<const std::string> stops);

  int32_t size() const { return static_cast<int32_t>(patterns_.size()); }
  const std::string& text(int32_t index) const { return patterns_[index].text; }

  // The state of pattern `index` (bytes matched) after one more byte; `state` may be the whole pattern.
  int32_t Advance(int32_t index, int32_t state, char byte) const;
  // Bytes of pattern `index` behind its first character.
  int32_t TailBytes(int32_t index) const { return patterns_[index].tail_bytes; }

 private:
  struct Pattern {
    std::string text;
    int32_t tail_bytes;
    std::vector<int32_t> failure;  // [size + 1]: longest proper border of each prefix
  };
  std::vector<Pattern> patterns_;
};

// Looks for stop strings in the text of one sequence as it comes, token by token. The stop that completes first wins,
// whichever began first; of several that complete at the same character, the first of the list. So the result does not
// depend on how the text is cut into tokens. Holds back the shortest tail that may still become a stop, always a proper
// prefix of one; behind a match that does not count, what of it follows its first character, so that no chunk is a stop
// as such. Not thread-safe.
class StopChecker {
 public:
  // `stops` must outlive the checker. A match counts only if it completes behind the first `min_tokens` tokens; it may
  // begin before.
  StopChecker(const StopStrings& stops, bool include_stop, int32_t min_tokens);

  // The text of the next token (whole characters, may be empty). Appends to *out what may be sent. Returns the index of
  // the stop that ends the sequence, whose text is then complete and cut; -1 if none does.
  int32_t Push(std::string_view piece, std::string* out);

  // The sequence has ended otherwise: appends what was held back.
  void Flush(std::string* out);

 private:
  const StopStrings* stops_;
  bool include_stop_;
  int64_t min_tokens_;
  int64_t num_tokens_ = 0;
  std::vector<int32_t> states_;  // bytes matched of each stop
  std::string held_;
};

}  // namespace quire
