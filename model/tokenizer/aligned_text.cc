#include "model/tokenizer/aligned_text.h"

#include <utility>

#include "model/tokenizer/utf8.h"

namespace quire {

TextRange AlignedText::OriginOf(size_t at) const {
  if (!origins_.empty()) return origins_[at];
  size_t begin = at;
  while (begin > 0 && (static_cast<uint8_t>(text_[begin]) & 0xC0) == 0x80) --begin;
  size_t end = begin;
  utf8::Decode(text_, &end);
  return {offset_ + begin, offset_ + end};
}

AlignedText AlignedText::Slice(size_t begin, size_t end) const {
  AlignedText slice(std::string_view(text_).substr(begin, end - begin), offset_, tracked_);
  if (begin == end) return slice;
  if (!tracked_) {
    // Only whether it is the very start of the original is asked for later.
    if (begin > 0) slice.offset_ += begin;
    return slice;
  }
  slice.offset_ = OriginOf(begin).begin;
  if (!origins_.empty()) slice.origins_.assign(origins_.begin() + begin, origins_.begin() + end);
  return slice;
}

AlignedText::Rewriter::Rewriter(AlignedText* target) : target_(target) { text_.reserve(target->text_.size()); }

void AlignedText::Rewriter::Keep(size_t begin, size_t end) {
  text_.append(target_->text_, begin, end - begin);
  if (!target_->tracked_) return;
  for (size_t i = begin; i < end; ++i) origins_.push_back(target_->OriginOf(i));
}

void AlignedText::Rewriter::Put(std::string_view text, size_t anchor) {
  text_.append(text);
  if (!target_->tracked_) return;
  const TextRange origin = anchor == kStart ? TextRange{target_->offset_, target_->offset_} : target_->OriginOf(anchor);
  origins_.insert(origins_.end(), text.size(), origin);
}

void AlignedText::Rewriter::Finish() {
  target_->text_ = std::move(text_);
  target_->origins_ = std::move(origins_);
}

}  // namespace quire
