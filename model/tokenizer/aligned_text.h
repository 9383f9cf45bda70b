#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace quire {

// A stretch of a text that stages rewrite, which knows, if `tracked`, what part of the original each byte stands for.
class AlignedText {
 public:
  AlignedText() = default;
  // `text` stands at `offset` of the original. Valid UTF-8, before and after each rewriting.
  AlignedText(std::string_view text, size_t offset, bool tracked) : text_(text), offset_(offset), tracked_(tracked) {}

  const std::string& text() const { return text_; }
  bool tracked() const { return tracked_; }
  // Where the stretch began in the original, before any rewriting.
  size_t offset() const { return offset_; }

  // The part of the original that bytes [begin, end), at least one, stand for: whole characters. Only if tracked.
  TextRange Origin(size_t begin, size_t end) const { return {OriginOf(begin).begin, OriginOf(end - 1).end}; }
  AlignedText Slice(size_t begin, size_t end) const;

  // Builds the new text from left to right.
  class Rewriter {
   public:
    static constexpr size_t kStart = static_cast<size_t>(-1);

    explicit Rewriter(AlignedText* target);
    // Bytes [begin, end) of the old text as they are.
    void Keep(size_t begin, size_t end);
    // New text that stands for what byte `anchor` of the old one stood for; kStart: for the empty start.
    void Put(std::string_view text, size_t anchor);
    size_t size() const { return text_.size(); }  // of the new text so far
    void Finish();

   private:
    AlignedText* target_;
    std::string text_;
    std::vector<TextRange> origins_;
  };

 private:
  TextRange OriginOf(size_t at) const;

  std::string text_;
  std::vector<TextRange> origins_;  // one a byte, empty as long as text_ is the original's own
  size_t offset_ = 0;
  bool tracked_ = false;
};

}  // namespace quire
