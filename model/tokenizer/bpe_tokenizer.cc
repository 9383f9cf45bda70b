#include "model/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

bool IsSpelledSpace(char32_t c) { return c == 0x120 || IsWhiteSpace(c); }

// Takes as many characters from each end of `range` of `text` as `spelling` has white space there; one less at the
// start if keeps_one.
void TrimRange(std::string_view text, std::string_view spelling, bool keeps_one, TextRange* range) {
  int64_t leading = 0;
  int64_t trailing = 0;
  bool only_space = true;
  for (size_t i = 0; i < spelling.size();) {
    const bool space = IsSpelledSpace(utf8::Decode(spelling, &i));
    only_space = only_space && space;
    leading += only_space ? 1 : 0;
    trailing = space ? trailing + 1 : 0;
  }
  if (leading == 1 && keeps_one) leading = 0;  // more of them are not what was put there
  for (; leading > 0 && range->begin < range->end; --leading) utf8::Decode(text, &range->begin);
  range->begin = std::min(range->begin, range->end);
  size_t end = range->end;
  for (int64_t i = 0; i < trailing; ++i) {
    if (end == 0) return;  // not so many characters in the whole text
    do {
      --end;
    } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  }
  range->end = std::max(end, range->begin);
}

// Whether bytes [begin, end) touch one of the stretches, which are in order.
bool Touches(const std::vector<TextRange>& stretches, size_t begin, size_t end) {
  const auto first = std::partition_point(stretches.begin(), stretches.end(),
                                          [begin](const TextRange& stretch) { return stretch.end <= begin; });
  return first != stretches.end() && first->begin < end;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(std::vector<Vocabulary::Token> tokens,
                                                                BpePipeline pipeline) {
  QUIRE_CHECK(pipeline.model.has_value());
  for (Vocabulary::Token& token : tokens) {
    QUIRE_ASSIGN_OR_RETURN(TokenDecoder::Piece piece, pipeline.decoder.Decode(token.text, /*is_first=*/false));
    token.bytes = std::move(piece.bytes);
    token.is_byte = piece.is_byte;
    if (!pipeline.decoder.first_differs()) continue;
    QUIRE_ASSIGN_OR_RETURN(piece, pipeline.decoder.Decode(token.text, /*is_first=*/true));
    token.first_bytes = std::move(piece.bytes);
  }
  QUIRE_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(std::move(tokens)));
  std::unique_ptr<BpeTokenizer> made(new BpeTokenizer(std::move(vocabulary), std::move(pipeline)));
  QUIRE_RETURN_IF_ERROR(made->PrepareAddedTokens());
  return made;
}

absl::Status BpeTokenizer::PrepareAddedTokens() {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken& token : pipeline_.added_tokens) {
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    if (pipeline_.normalizer != nullptr) {
      // Compared with normalized text, so normalized itself.
      AlignedText content(token.content, 0, /*tracked=*/false);
      QUIRE_RETURN_IF_ERROR(pipeline_.normalizer->Normalize(&content));
      token.content = content.text();
    }
    normalized.push_back(std::move(token));
  }
  pipeline_.added_tokens.clear();
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  QUIRE_ASSIGN_OR_RETURN(Encoding encoding, EncodeWith(text, {.add_special_tokens = add_special_tokens}));
  return std::move(encoding.ids);
}

absl::StatusOr<Encoding> BpeTokenizer::EncodeWith(std::string_view text, const EncodeOptions& options) const {
  constexpr size_t kMaxBytes = std::numeric_limits<int32_t>::max() / 4;  // room for what the stages add
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has ", text.size(), " bytes, at most ", kMaxBytes, " are encoded"));
  }
  if (const size_t valid = utf8::ValidPrefix(text); valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("text is not valid UTF-8 at byte ", valid));
  }
  Encoding encoding;
  const bool tracked = options.with_offsets || !options.literal.empty();
  AddedTokenMatcher::IsLiteral is_literal;
  if (!options.literal.empty()) {
    is_literal = [&options](size_t begin, size_t end) { return Touches(options.literal, begin, end); };
  }
  for (const AddedTokenMatcher::Part& part : raw_added_.Split(text, is_literal)) {
    if (part.id < 0) {
      AlignedText plain(text.substr(part.begin, part.end - part.begin), part.begin, tracked);
      QUIRE_RETURN_IF_ERROR(EncodePlain(std::move(plain), options, &encoding));
      continue;
    }
    encoding.ids.push_back(part.id);
    if (tracked) encoding.offsets.push_back({part.begin, part.end});
  }
  if (!options.with_offsets) encoding.offsets.clear();
  const PostProcessing& post = pipeline_.post;
  const size_t num_special = options.add_special_tokens ? post.prefix.size() + post.suffix.size() : 0;
  QUIRE_RETURN_IF_ERROR(Truncate(options, num_special, &encoding));
  if (options.with_offsets) TrimOffsets(text, &encoding);
  if (!options.add_special_tokens) return encoding;
  encoding.ids.insert(encoding.ids.begin(), post.prefix.begin(), post.prefix.end());
  encoding.ids.insert(encoding.ids.end(), post.suffix.begin(), post.suffix.end());
  if (options.with_offsets) {
    encoding.offsets.insert(encoding.offsets.begin(), post.prefix.size(), TextRange());
    encoding.offsets.insert(encoding.offsets.end(), post.suffix.size(), TextRange());
  }
  return encoding;
}

absl::Status BpeTokenizer::EncodePlain(AlignedText text, const EncodeOptions& options, Encoding* out) const {
  if (pipeline_.normalizer != nullptr) QUIRE_RETURN_IF_ERROR(pipeline_.normalizer->Normalize(&text));
  AddedTokenMatcher::IsLiteral is_literal;
  if (!options.literal.empty()) {
    is_literal = [&](size_t begin, size_t end) {
      const TextRange origin = text.Origin(begin, end);
      return Touches(options.literal, origin.begin, origin.end);
    };
  }
  const auto parts = normalized_added_.Split(text.text(), is_literal);
  if (parts.size() == 1 && parts[0].id < 0) return EncodeNormalized(std::move(text), out);
  for (const AddedTokenMatcher::Part& part : parts) {
    if (part.id < 0) {
      QUIRE_RETURN_IF_ERROR(EncodeNormalized(text.Slice(part.begin, part.end), out));
      continue;
    }
    out->ids.push_back(part.id);
    if (text.tracked()) out->offsets.push_back(text.Origin(part.begin, part.end));
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeNormalized(AlignedText text, Encoding* out) const {
  const size_t size = text.text().size();
  Pieces pieces{.text = std::move(text), .spans = {{0, size}}};
  if (pipeline_.pre_tokenizer != nullptr) QUIRE_RETURN_IF_ERROR(pipeline_.pre_tokenizer->Apply(&pieces));
  const bool tracked = pieces.text.tracked();
  const std::string_view pieced = pieces.text.text();
  std::vector<uint32_t> sizes;
  for (const TextRange& piece : pieces.spans) {
    sizes.clear();
    pipeline_.model->Tokenize(pieced.substr(piece.begin, piece.end - piece.begin), &out->ids,
                              tracked ? &sizes : nullptr);
    if (tracked) AppendOffsets(pieces.text, piece, sizes, out);
  }
  return absl::OkStatus();
}

// Sizes count the piece's bytes, or those of its byte-level spelling.
void BpeTokenizer::AppendOffsets(const AlignedText& text, TextRange piece, const std::vector<uint32_t>& sizes,
                                 Encoding* out) const {
  size_t at = piece.begin;  // the byte that is being counted
  size_t spelled_end = 0;   // of it
  size_t counted = 0;       // bytes of the spelling before the token
  const auto byte_at = [&](size_t spelled) {
    while (true) {
      const size_t size = pipeline_.model_is_byte_level ? byte_level::SpelledSize(text.text()[at]) : 1;
      if (spelled < spelled_end + size || at + 1 == piece.end) return at;
      spelled_end += size;
      ++at;
    }
  };
  for (const uint32_t size : sizes) {
    const size_t first = byte_at(counted);
    const size_t last = byte_at(counted + size - 1);
    out->offsets.push_back(text.Origin(first, last + 1));
    counted += size;
  }
}

void BpeTokenizer::TrimOffsets(std::string_view text, Encoding* encoding) const {
  for (const PostProcessing::Trim& trim : pipeline_.post.trims) {
    for (size_t i = 0; i < encoding->ids.size(); ++i) {
      const Vocabulary::Token* token = vocabulary_.Find(encoding->ids[i]);
      if (token == nullptr) continue;
      TextRange& offsets = encoding->offsets[i];
      const bool keeps_one = trim.add_prefix_space && (i == 0 || offsets.begin == 0);
      TrimRange(text, token->text, keeps_one, &offsets);
    }
  }
}

absl::Status BpeTokenizer::Truncate(const EncodeOptions& options, size_t num_special, Encoding* encoding) const {
  if (options.max_tokens < 0) return absl::OkStatus();
  const auto limit = static_cast<size_t>(options.max_tokens);
  if (limit < num_special) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", limit, ", which has no room for the ", num_special,
                                                   " special tokens around the text"));
  }
  const size_t keep = limit - num_special;
  if (encoding->ids.size() <= keep) return absl::OkStatus();
  const size_t begin = options.keep == EncodeOptions::Keep::kFirst ? 0 : encoding->ids.size() - keep;
  const auto cut = [&](auto* list) {
    if (!list->empty()) *list = {list->begin() + begin, list->begin() + begin + keep};
  };
  cut(&encoding->ids);
  cut(&encoding->offsets);
  return absl::OkStatus();
}

std::string BpeTokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const {
  const JoinRules& rules = pipeline_.decoder.join_rules();
  std::string bytes;
  std::string run;  // of byte tokens
  const auto end_run = [&] {
    if (utf8::IsValid(run)) {
      bytes += run;
    } else {
      for (size_t i = 0; i < run.size(); ++i) bytes += utf8::kReplacement;
    }
    run.clear();
  };
  bool is_first = true;
  for (const int32_t id : ids) {
    const Vocabulary::Token* token = vocabulary_.Find(id);
    if (token == nullptr || (skip_special_tokens && token->special)) continue;
    if (token->is_byte) {
      run += token->bytes;
    } else {
      end_run();
      bytes += is_first && pipeline_.decoder.first_differs() ? token->first_bytes : token->bytes;
    }
    is_first = false;
  }
  end_run();
  std::string text;
  utf8::AppendLossy(bytes, &text);
  size_t begin = 0;
  for (int64_t i = 0; i < rules.strip_count && text.compare(begin, rules.strip.size(), rules.strip) == 0; ++i) {
    begin += rules.strip.size();
  }
  text.erase(0, begin);
  return text;
}

std::string_view BpeTokenizer::TokenBytes(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  return token == nullptr ? std::string_view() : std::string_view(token->bytes);
}

std::string_view BpeTokenizer::FirstTokenBytes(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  if (token == nullptr || !pipeline_.decoder.first_differs()) return TokenBytes(id);
  return token->first_bytes;
}

bool BpeTokenizer::IsByte(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  return token != nullptr && token->is_byte;
}

bool BpeTokenizer::IsSpecial(int32_t id) const {
  const Vocabulary::Token* token = vocabulary_.Find(id);
  return token != nullptr && token->special;
}

}  // namespace quire
