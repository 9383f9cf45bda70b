#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/aligned_text.h"
#include "model/tokenizer/pattern.h"

namespace quire {

// A text and its pieces, which are tokenised each on its own.
struct Pieces {
  AlignedText text;
  std::vector<TextRange> spans;  // ascending, none empty, none overlapping; what lies between them vanishes
};

// Cuts further, and may rewrite. Immutable once in use, safe to use from many threads at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Valid UTF-8 in, valid UTF-8 out. kResourceExhausted if a regex gave up.
  virtual absl::Status Apply(Pieces* pieces) const = 0;
  // If the last thing it does is to spell bytes in the byte-level alphabet: leaves that out from now on (for a model
  // that works on the bytes themselves) and returns true.
  virtual bool LeaveBytes() { return false; }
};

// What becomes of a match: a piece of its own, nothing, a part of the piece before or after it, or, with all matches
// that touch it, one piece.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts each piece at the matches of a pattern. invert: what lies between the matches is taken as the matches, and the
// other way round.
std::unique_ptr<PreTokenizer> MakeSplit(Pattern pattern, SplitBehavior behavior, bool invert);
// The same of a regular expression.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeRegexSplit(std::string_view regex, SplitBehavior behavior);

// Each digit (Unicode N) alone, or each run of them.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeDigits(bool individual_digits);
// Each punctuation character is a match.
std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior);
// Without white space, and, if `words`, cut where a run of word characters begins or ends.
std::unique_ptr<PreTokenizer> MakeWhitespace(bool words);

// Cuts by GPT-2's pattern, if use_regex, and spells every byte as a character of the byte-level alphabet.
// add_prefix_space: a piece that does not begin with a space gets one.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeByteLevel(bool add_prefix_space, bool use_regex);

// Writes spaces as `mark`, puts one before pieces that do not begin with it (kFirst: before the one at the start of the
// whole text), and cuts before each mark if `split`.
struct MetaspaceOptions {
  enum class Prepend { kAlways, kNever, kFirst };
  std::string mark;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeMetaspace(MetaspaceOptions options);

// One after the other; none at all is legal.
std::unique_ptr<PreTokenizer> MakeSequence(std::vector<std::unique_ptr<PreTokenizer>> parts);

}  // namespace quire
