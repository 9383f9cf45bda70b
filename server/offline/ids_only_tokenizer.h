#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace quire {

// Stands in for the tokenizer of a model that brings none: ids go in and come out, text is refused and empty.
class IdsOnlyTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view, bool) const override {
    return absl::InvalidArgumentError("the model has no tokenizer; give prompt_ids, or --tokenizer");
  }
  std::string Decode(absl::Span<const int32_t>, bool) const override { return ""; }
  int32_t vocab_size() const override { return 0; }
  std::string_view TokenBytes(int32_t) const override { return ""; }
  bool IsSpecial(int32_t) const override { return false; }
  int32_t TokenId(std::string_view) const override { return -1; }
  bool adds_bos() const override { return false; }
};

}  // namespace quire
