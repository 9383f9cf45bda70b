#include "model/tokenizer/normalizer.h"

#include <algorithm>

#include "kernels/base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace quire {

absl::Status UnicodeNormalizer::Normalize(AlignedText* text) const {
  NormalizeUnicode(form_, text);
  return absl::OkStatus();
}

absl::Status ReplaceNormalizer::Normalize(AlignedText* text) const {
  std::string storage;
  const std::string_view known =
      pattern_.needs_known_categories() ? WithKnownCategories(text->text(), &storage) : text->text();
  std::vector<TextRange> matches;
  QUIRE_RETURN_IF_ERROR(pattern_.FindAll(text->text(), known, {0, text->text().size()}, &matches));
  if (matches.empty()) return absl::OkStatus();
  AlignedText::Rewriter rewriter(text);
  size_t done = 0;
  for (const TextRange& match : matches) {
    rewriter.Keep(done, match.begin);
    rewriter.Put(content_, match.end == 0 ? AlignedText::Rewriter::kStart : match.end - 1);
    done = match.end;
  }
  rewriter.Keep(done, text->text().size());
  rewriter.Finish();
  return absl::OkStatus();
}

void PrependTo(AlignedText* text, std::string_view content) {
  if (content.empty() || text->text().empty()) return;
  AlignedText::Rewriter rewriter(text);
  rewriter.Put(content, 0);
  rewriter.Keep(0, text->text().size());
  rewriter.Finish();
}

absl::Status PrependNormalizer::Normalize(AlignedText* text) const {
  PrependTo(text, content_);
  return absl::OkStatus();
}

absl::Status LowercaseNormalizer::Normalize(AlignedText* text) const {
  AlignedText::Rewriter rewriter(text);
  const std::string_view old = text->text();
  std::string lower;
  for (size_t i = 0; i < old.size();) {
    const size_t begin = i;
    lower.clear();
    AppendLowercase(utf8::Decode(old, &i), &lower);
    rewriter.Put(lower, begin);
  }
  rewriter.Finish();
  return absl::OkStatus();
}

absl::Status StripNormalizer::Normalize(AlignedText* text) const {
  const std::string_view old = text->text();
  const size_t begin = left_ ? SizeOfLeadingSpace(old) : 0;
  const size_t end = right_ ? std::max(begin, SizeWithoutTrailingSpace(old)) : old.size();
  AlignedText::Rewriter rewriter(text);
  rewriter.Keep(begin, end);
  rewriter.Finish();
  return absl::OkStatus();
}

absl::Status SequenceNormalizer::Normalize(AlignedText* text) const {
  for (const auto& part : parts_) QUIRE_RETURN_IF_ERROR(part->Normalize(text));
  return absl::OkStatus();
}

}  // namespace quire
