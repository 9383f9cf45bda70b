#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

// What a Split or Replace looks for: a literal text or a regular expression. Immutable, safe to use from many threads
// at once.
class Pattern {
 public:
  // kInvalidArgument or kUnimplemented if the expression cannot be used (Regex::Compile).
  static absl::StatusOr<Pattern> OfRegex(std::string_view regex);
  // kInvalidArgument if it is empty.
  static absl::StatusOr<Pattern> OfLiteral(std::string_view literal);

  // Appends the matches in bytes [begin, end) of `text`, left to right, none overlapping, as positions in `text`.
  // `known` is WithKnownCategories of `text`. kResourceExhausted if the regular expression gave up.
  absl::Status FindAll(std::string_view text, std::string_view known, TextRange within,
                       std::vector<TextRange>* matches) const;
  // Whether FindAll looks at `known`.
  bool needs_known_categories() const { return regex_ != nullptr; }

 private:
  Pattern() = default;

  std::string literal_;
  std::unique_ptr<Regex> regex_;  // null: the literal
};

}  // namespace quire
