#include "model/tokenizer/vocabulary.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "model/printable.h"

namespace quire {

absl::Status Vocabulary::CheckId(int64_t id, std::string_view text) {
  if (id >= 0 && id < kMaxTokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("token '%s' has id %d, which must be in [0, %d)", Printable(text), id, kMaxTokens));
}

absl::StatusOr<Vocabulary> Vocabulary::Create(std::vector<Token> tokens) {
  Vocabulary made;
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  made.tokens_ = std::move(tokens);
  made.ids_.reserve(made.tokens_.size());
  const Token* previous = nullptr;
  for (const Token& token : made.tokens_) {
    if (previous != nullptr && previous->id == token.id) {
      return absl::InvalidArgumentError(absl::StrFormat("tokens '%s' and '%s' have the same id %d",
                                                        Printable(previous->text), Printable(token.text), token.id));
    }
    const auto [at, inserted] = made.ids_.emplace(token.text, token.id);
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token '%s' has the two ids %d and %d", Printable(token.text), at->second, token.id));
    }
    previous = &token;
  }
  return made;
}

const Vocabulary::Token* Vocabulary::Find(int32_t id) const {
  // Without gaps the id is the index.
  if (id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[id].id == id) return &tokens_[id];
  const auto at = std::lower_bound(tokens_.begin(), tokens_.end(), id,
                                   [](const Token& token, int32_t wanted) { return token.id < wanted; });
  return at != tokens_.end() && at->id == id ? &*at : nullptr;
}

int32_t Vocabulary::IdOf(std::string_view text) const {
  const auto at = ids_.find(text);
  return at == ids_.end() ? -1 : at->second;
}

}  // namespace quire
