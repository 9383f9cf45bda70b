#include "model/tokenizer/pattern.h"

#include "kernels/base/status_macros.h"

namespace quire {

absl::StatusOr<Pattern> Pattern::OfRegex(std::string_view regex) {
  Pattern made;
  QUIRE_ASSIGN_OR_RETURN(made.regex_, Regex::Compile(regex));
  return made;
}

absl::StatusOr<Pattern> Pattern::OfLiteral(std::string_view literal) {
  if (literal.empty()) return absl::InvalidArgumentError("the literal to look for is empty");
  Pattern made;
  made.literal_ = literal;
  return made;
}

absl::Status Pattern::FindAll(std::string_view text, std::string_view known, TextRange within,
                              std::vector<TextRange>* matches) const {
  if (regex_ != nullptr) {
    const size_t first = matches->size();
    QUIRE_RETURN_IF_ERROR(regex_->FindAll(known.substr(within.begin, within.end - within.begin), matches));
    for (size_t i = first; i < matches->size(); ++i) {
      (*matches)[i].begin += within.begin;
      (*matches)[i].end += within.begin;
    }
    return absl::OkStatus();
  }
  const std::string_view stretch = text.substr(0, within.end);
  for (size_t at = stretch.find(literal_, within.begin); at != stretch.npos;) {
    matches->push_back({at, at + literal_.size()});
    at = stretch.find(literal_, at + literal_.size());
  }
  return absl::OkStatus();
}

}  // namespace quire
