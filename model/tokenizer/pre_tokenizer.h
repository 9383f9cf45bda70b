#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/regex.h"

namespace quire {

// A text cut into pieces that are tokenised each on its own. The pieces follow one another and fill the text.
struct Pieces {
  std::string text;
  std::vector<size_t> ends;  // ascending, one a piece, none empty; the last is text.size()
};

// Cuts further, and may rewrite. Immutable, safe to use from many threads at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Valid UTF-8 in, valid UTF-8 out. kResourceExhausted if a regex gave up.
  virtual absl::Status Apply(Pieces* pieces) const = 0;
};

// Cuts each piece at the matches of a pattern.
class SplitPreTokenizer : public PreTokenizer {
 public:
  // What becomes of a match: a piece of its own, nothing, a part of the piece before or after it, or, with all matches
  // that touch it, one piece.
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

  // invert: what lies between the matches is taken as the matches, and the other way round.
  SplitPreTokenizer(std::unique_ptr<Regex> regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(Pieces* pieces) const override;

 private:
  std::unique_ptr<Regex> regex_;
  Behavior behavior_;
  bool invert_;
};

// Cuts by GPT-2's pattern, if `use_regex`, and spells every byte as a character of the byte-level alphabet.
class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  // add_prefix_space: a piece that does not begin with a space gets one.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(bool add_prefix_space, bool use_regex);
  absl::Status Apply(Pieces* pieces) const override;

 private:
  ByteLevelPreTokenizer() = default;

  bool add_prefix_space_ = false;
  std::unique_ptr<SplitPreTokenizer> split_;  // null without use_regex
};

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  absl::Status Apply(Pieces* pieces) const override;

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

// SplitPreTokenizer of a regular expression.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeSplit(std::string_view pattern, SplitPreTokenizer::Behavior behavior,
                                                        bool invert);
// Each digit (Unicode N) alone, or each run of them.
absl::StatusOr<std::unique_ptr<PreTokenizer>> MakeDigits(bool individual_digits);

}  // namespace quire
