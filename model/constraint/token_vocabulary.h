#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace quire {
class Tokenizer;
}  // namespace quire

namespace quire::constraint {

// The tokens of a tokenizer in the order in which masks are computed: a trie over their bytes. Built once a tokenizer;
// immutable afterwards. Tokens without bytes are in no mask, but for the end tokens.
//
// A special token is not its spelling: it is read as the byte kSpecial and its spelling, and only what
// WithSpecialTokens writes has that byte. No text in UTF-8 has it, so other tokens with it are in no mask.
class TokenVocabulary {
 public:
  // One node of a trie, in depth-first order.
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;  // bytes of the token that ends here
    int32_t next = 0;    // the first node that is no descendant
    int32_t tokens = 0;  // index of the tokens that end here, in token_lists; 0 if there are none
  };
  struct Trie {
    std::vector<Node> nodes;
    std::vector<int32_t> token_lists;  // at each index: the ids with these bytes, then -1
    int32_t max_depth = 0;
  };

  // `end_ids`: the tokens that end a text, allowed exactly where it is complete. `size`: of the logits, below 2^24;
  // ids of the tokenizer beyond it are in no mask. The tokenizer is not used afterwards.
  TokenVocabulary(const Tokenizer& tokenizer, absl::Span<const int32_t> end_ids, int32_t size);
  // For tests, none special: tokens[id] are the bytes of token `id`.
  TokenVocabulary(absl::Span<const std::string_view> tokens, absl::Span<const int32_t> end_ids);

  int32_t size() const { return size_; }
  int64_t num_words() const { return (int64_t{size_} + 31) / 32; }  // of a mask
  absl::Span<const int32_t> end_ids() const { return end_ids_; }
  bool IsEnd(int32_t id) const;
  // Empty for a token that no text contains, and for ids outside the vocabulary.
  std::string_view TokenBytes(int32_t id) const;

  static constexpr char kSpecial = static_cast<char>(0xFF);
  // `text` where the spellings of special tokens stand for these tokens, the longest one first.
  std::string WithSpecialTokens(std::string_view text) const;

  const Trie& trie() const { return trie_; }
  // Plain tokens are at most kPlainChars whole characters, none of them a control character, quote or backslash: inside
  // a JSON string most likely all are allowed, or all of up to some length. plain_tokens: the mask of those that have
  // at most `chars` characters. other_trie: all tokens that are not plain.
  static constexpr int kPlainChars = 16;
  const std::vector<uint32_t>& plain_tokens(int chars) const { return plain_tokens_[chars]; }
  const Trie& other_trie() const { return other_trie_; }

 private:
  void Build(const std::vector<bool>& usable);

  int32_t size_ = 0;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<char> bytes_;
  std::vector<int32_t> offsets_;      // of token id in bytes_; size_ + 1
  std::vector<int32_t> special_ids_;  // of tokens with a spelling that end no text
  Trie trie_, other_trie_;
  std::vector<uint32_t> plain_tokens_[kPlainChars + 1];
};

}  // namespace quire::constraint
