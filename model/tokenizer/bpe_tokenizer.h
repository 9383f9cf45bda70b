#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/aligned_text.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/token_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/vocabulary.h"

namespace quire {

// What the post-processor puts around the ids, and does to the offsets.
struct PostProcessing {
  // Byte-level trimming: offsets lose the white space at both ends; with add_prefix_space the first token keeps one.
  struct Trim {
    bool add_prefix_space = false;
  };
  std::vector<int32_t> prefix;  // ids before the text's
  std::vector<int32_t> suffix;  // and after
  std::vector<Trim> trims;      // in order
};

// The stages of BPE, as the loaders fill them in.
struct BpePipeline {
  std::vector<AddedToken> added_tokens;
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  std::optional<Bpe> model;
  bool model_is_byte_level = false;  // Bpe::Options::bytes
  PostProcessing post;
  TokenDecoder decoder;
};

// Text -> added tokens cut out -> normalizer -> added tokens cut out of normalized text -> pre-tokenizer -> BPE.
class BpeTokenizer : public Tokenizer {
 public:
  // `tokens`: all, with the added ones. The ids of added tokens, prefix and suffix must be among them. kInvalidArgument
  // as Vocabulary::Create has it; kResourceExhausted if a regular expression gave up on a token.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(std::vector<Vocabulary::Token> tokens, BpePipeline pipeline);

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const override;
  absl::StatusOr<Encoding> EncodeWith(std::string_view text, const EncodeOptions& options) const override;
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override;
  int32_t vocab_size() const override { return vocabulary_.size(); }
  std::string_view TokenBytes(int32_t id) const override;
  std::string_view FirstTokenBytes(int32_t id) const override;
  bool IsByte(int32_t id) const override;
  JoinRules join_rules() const override { return pipeline_.decoder.join_rules(); }
  bool IsSpecial(int32_t id) const override;
  int32_t TokenId(std::string_view spelling) const override { return vocabulary_.IdOf(spelling); }
  bool adds_bos() const override { return !pipeline_.post.prefix.empty(); }

 private:
  BpeTokenizer(Vocabulary vocabulary, BpePipeline pipeline)
      : vocabulary_(std::move(vocabulary)), pipeline_(std::move(pipeline)) {}

  absl::Status PrepareAddedTokens();
  absl::Status EncodePlain(AlignedText text, const EncodeOptions& options, Encoding* out) const;
  absl::Status EncodeNormalized(AlignedText text, Encoding* out) const;
  void AppendOffsets(const AlignedText& text, TextRange piece, const std::vector<uint32_t>& sizes, Encoding* out) const;
  void TrimOffsets(std::string_view text, Encoding* encoding) const;
  absl::Status Truncate(const EncodeOptions& options, size_t num_special, Encoding* encoding) const;

  Vocabulary vocabulary_;
  BpePipeline pipeline_;
  AddedTokenMatcher raw_added_;         // looked for in the text as it comes
  AddedTokenMatcher normalized_added_;  // looked for after the normalizer
};

}  // namespace quire
