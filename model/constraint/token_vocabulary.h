#pragma once

#include <array>
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

// A set of tokens.
struct TokenMask {
  int32_t num_allowed = 0;
  std::vector<int32_t> ids;     // if there are few; any order
  std::vector<uint32_t> words;  // otherwise: TokenVocabulary::num_words()
  int64_t bytes() const { return static_cast<int64_t>(sizeof(*this) + ids.size() * 4 + words.size() * 4); }
};

// The tokens of a tokenizer in the order in which masks are computed: as tries over their bytes. Built once a
// tokenizer; immutable afterwards. Tokens without bytes are in no mask, but for the end tokens.
//
// A special token is not its spelling: it is read as the byte kSpecial and its spelling, and only what
// WithSpecialTokens writes has that byte. No text in UTF-8 has it, so other tokens with it are in no mask.
class TokenVocabulary {
 public:
  // One node of a trie, in depth-first order; the last one is no node but ends the lists of those before it. The tokens
  // that end at node i are ids[nodes[i].first_id] to ids[nodes[i + 1].first_id], without the last; those at or below it
  // go on to ids[nodes[nodes[i].next].first_id].
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;  // bytes down to here, with this one
    int32_t next = 0;    // the first node that is no descendant
    int32_t first_id = 0;
  };
  struct Trie {
    std::vector<Node> nodes;
    std::vector<uint64_t> groups_below;  // of each node: the groups of the bytes below it, as bits
    std::vector<int32_t> ids;
    int32_t max_depth = 0;
  };

  // Groups of bytes that automata mostly treat alike, to tell at once that a text has no other ones.
  static constexpr int kNumGroups = 64;
  static const std::array<uint8_t, 256>& GroupOfByte();

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
  // A plain character is none of the control characters, quote and backslash: inside a JSON string most likely all
  // texts of plain characters are allowed, or all of up to some length. Plain tokens have at most kPlainChars of them
  // and nothing else. plain_tokens: those of at most `chars` characters. remainders: all other tokens that begin with
  // exactly `chars` plain characters, or with kPlainChars at least: what follows these. all_remainders: of all tokens
  // that are not plain.
  static constexpr int kPlainChars = 16;
  const TokenMask& plain_tokens(int chars) const { return plain_tokens_[chars]; }
  const Trie& remainders(int chars) const { return remainders_[chars]; }
  const Trie& all_remainders() const { return all_remainders_; }

 private:
  void Build(const std::vector<bool>& usable);

  int32_t size_ = 0;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<char> bytes_;
  std::vector<int32_t> offsets_;      // of token id in bytes_; size_ + 1
  std::vector<int32_t> special_ids_;  // of tokens with a spelling that end no text
  Trie trie_, all_remainders_;
  std::array<Trie, kPlainChars + 1> remainders_;
  std::array<TokenMask, kPlainChars + 1> plain_tokens_;
};

}  // namespace quire::constraint
