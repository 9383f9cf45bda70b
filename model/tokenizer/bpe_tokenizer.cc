#include "model/tokenizer/bpe_tokenizer.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace quire {

BpeTokenizer::BpeTokenizer(Vocabulary vocabulary, BpePipeline pipeline)
    : vocabulary_(std::move(vocabulary)), pipeline_(std::move(pipeline)) {
  QUIRE_CHECK(pipeline_.model.has_value());
  for (AddedToken& token : pipeline_.added_tokens) {
    if (!token.normalized) {
      raw_added_.Add(std::move(token));
      continue;
    }
    // Compared with normalized text, so normalized itself.
    if (pipeline_.normalizer != nullptr) pipeline_.normalizer->Normalize(&token.content);
    normalized_added_.Add(std::move(token));
  }
  pipeline_.added_tokens.clear();
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  constexpr size_t kMaxBytes = std::numeric_limits<int32_t>::max() / 4;  // room for what the stages add
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has ", text.size(), " bytes, at most ", kMaxBytes, " are encoded"));
  }
  if (const size_t valid = utf8::ValidPrefix(text); valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", valid));
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = pipeline_.prefix;
  for (const AddedTokenMatcher::Part& part : raw_added_.Split(text)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      QUIRE_RETURN_IF_ERROR(EncodePlain(part.text, &ids));
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), pipeline_.suffix.begin(), pipeline_.suffix.end());
  return ids;
}

absl::Status BpeTokenizer::EncodePlain(std::string_view text, std::vector<int32_t>* ids) const {
  std::string normalized(text);
  if (pipeline_.normalizer != nullptr) pipeline_.normalizer->Normalize(&normalized);
  for (const AddedTokenMatcher::Part& part : normalized_added_.Split(normalized)) {
    if (part.id >= 0) {
      ids->push_back(part.id);
    } else {
      QUIRE_RETURN_IF_ERROR(EncodeNormalized(part.text, ids));
    }
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeNormalized(std::string_view text, std::vector<int32_t>* ids) const {
  Pieces pieces{.text = std::string(text), .ends = {text.size()}};
  if (pipeline_.pre_tokenizer != nullptr) QUIRE_RETURN_IF_ERROR(pipeline_.pre_tokenizer->Apply(&pieces));
  size_t begin = 0;
  for (const size_t end : pieces.ends) {
    pipeline_.model->Tokenize(std::string_view(pieces.text).substr(begin, end - begin), ids);
    begin = end;
  }
  return absl::OkStatus();
}

std::string BpeTokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const Vocabulary::Token* token = vocabulary_.Find(id);
    if (token == nullptr || (skip_special_tokens && token->special)) continue;
    bytes += token->bytes;
  }
  std::string text;
  utf8::AppendLossy(bytes, &text);
  return text;
}

std::string_view BpeTokenizer::TokenBytes(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  return token == nullptr ? std::string_view() : std::string_view(token->bytes);
}

bool BpeTokenizer::IsSpecial(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  return token != nullptr && token->special;
}

}  // namespace quire
