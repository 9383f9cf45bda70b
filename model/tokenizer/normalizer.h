#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/tokenizer/aligned_text.h"
#include "model/tokenizer/pattern.h"
#include "model/tokenizer/unicode.h"

namespace quire {

// Rewrites a stretch of text before anything else is done with it. Immutable, safe to use from many threads at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // kResourceExhausted if a regular expression gave up.
  virtual absl::Status Normalize(AlignedText* text) const = 0;
};

// NFC, NFD, NFKC or NFKD as of Unicode 9.
class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  absl::Status Normalize(AlignedText* text) const override;

 private:
  NormalForm form_;
};

// Puts `content` in the place of each match.
class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  absl::Status Normalize(AlignedText* text) const override;

 private:
  Pattern pattern_;
  std::string content_;
};

// Puts `content` before a text that is not empty.
class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string content) : content_(std::move(content)) {}
  absl::Status Normalize(AlignedText* text) const override;

 private:
  std::string content_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  absl::Status Normalize(AlignedText* text) const override;
};

// Takes the white space from the ends.
class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  absl::Status Normalize(AlignedText* text) const override;

 private:
  bool left_;
  bool right_;
};

// One after the other; none at all is legal.
class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  absl::Status Normalize(AlignedText* text) const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

// Puts `content`, if not empty, before a text that is not empty; it stands for the text's first character.
void PrependTo(AlignedText* text, std::string_view content);

}  // namespace quire
