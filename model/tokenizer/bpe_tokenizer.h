#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocabulary.h"

namespace quire {

// The stages of byte-level BPE, as the loaders fill them in.
struct BpePipeline {
  std::vector<AddedToken> added_tokens;
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  std::optional<Bpe> model;
  std::vector<int32_t> prefix;  // ids that add_special_tokens puts before the text's
  std::vector<int32_t> suffix;  // and after
};

// Text -> added tokens cut out -> normalizer -> added tokens cut out of normalized text -> pre-tokenizer -> BPE.
class BpeTokenizer : public Tokenizer {
 public:
  // The added tokens must be in `vocabulary`, with their ids; the prefix and suffix too.
  BpeTokenizer(Vocabulary vocabulary, BpePipeline pipeline);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const override;
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override;
  int32_t vocab_size() const override { return vocabulary_.size(); }
  std::string_view TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  int32_t TokenId(std::string_view spelling) const override { return vocabulary_.IdOf(spelling); }
  bool adds_bos() const override { return !pipeline_.prefix.empty(); }

 private:
  absl::Status EncodePlain(std::string_view text, std::vector<int32_t>* ids) const;
  absl::Status EncodeNormalized(std::string_view text, std::vector<int32_t>* ids) const;

  Vocabulary vocabulary_;
  BpePipeline pipeline_;
  AddedTokenMatcher raw_added_;         // looked for in the text as it comes
  AddedTokenMatcher normalized_added_;  // looked for after the normalizer
};

}  // namespace quire
