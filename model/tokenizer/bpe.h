#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "model/tokenizer/neighbours.h"
#include "model/tokenizer/text_map.h"

namespace quire {

// Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909) of one piece of text: its characters are tokens, then the
// adjacent pair of lowest rank, the leftmost of equals, becomes one token until no pair has a rank.
// Immutable once made, safe to use from many threads at once. O(n log n) in the length of a piece.
class Bpe {
 public:
  struct Options {
    bool ignore_merges = false;  // a piece that is a token as a whole is that token
    bool byte_fallback = false;  // a character without a token becomes the tokens <0x00> to <0xFF> of its bytes
    bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
    std::string unk_token;       // empty: unknown characters vanish
    // Pieces are bytes, which the tokens spell in the byte-level alphabet. Not with byte_fallback or unk_token.
    bool bytes = false;
  };

  explicit Bpe(Options options) : options_(std::move(options)) {}

  // Before any merge. False if the spelling is there already.
  bool AddToken(std::string_view text, int32_t id);
  void Reserve(size_t num_tokens, size_t num_merges);
  // In order of rank; a pair given twice keeps the later rank, as the reference has it. kInvalidArgument if one of the
  // two, or what they make, is no token.
  absl::Status AddMerge(std::string_view left, std::string_view right);
  // The same of "left right".
  absl::Status AddMerge(std::string_view line);
  // Two tokens that make a third, at any rank, which others may have too.
  void AddRankedMerge(int32_t left, int32_t right, int32_t made, int32_t rank);
  // A character that is no token but a part of some: it takes part in merges, and becomes bytes if it is left over.
  // Returns its stand-in for an id.
  int32_t AddCharacter(std::string_view character);
  // After the last token and merge. kInvalidArgument if unk_token is no token.
  absl::Status Finish();

  int32_t IdOf(std::string_view text) const;  // by spelling, before Finish; -1 if there is none

  // Appends the ids of `piece`, of less than 2^31 bytes, valid UTF-8 unless options.bytes; and to *sizes, if not null,
  // how many bytes of the piece (options.bytes: of its spelling) each stands for. They follow one another from the
  // piece's start, as the reference counts them, also where a character vanished.
  void Tokenize(std::string_view piece, std::vector<int32_t>* ids, std::vector<uint32_t>* sizes) const;

 private:
  struct Token {
    int32_t id = -1;
    bool whole = false;  // its own text comes out as this one token
  };
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  // The end of *ids, and if wanted of *sizes: one stretch that is merged.
  struct Symbols {
    Symbols(std::vector<int32_t>* ids, std::vector<uint32_t>* sizes)
        : ids(ids), sizes(sizes), begin(ids->size()), sizes_begin(sizes == nullptr ? 0 : sizes->size()) {}
    void Push(int32_t id, size_t size) const {
      ids->push_back(id);
      if (sizes != nullptr) sizes->push_back(static_cast<uint32_t>(size));
    }
    size_t size() const { return ids->size() - begin; }
    int32_t id(size_t i) const { return (*ids)[begin + i]; }
    uint32_t size_of(size_t i) const { return sizes == nullptr ? 0 : (*sizes)[sizes_begin + i]; }
    // What was at [begin, end), begin >= i, is one at i now.
    void Join(size_t i, int32_t id, size_t begin, size_t end) const {
      (*ids)[this->begin + i] = id;
      if (sizes == nullptr) return;
      const auto from = sizes->begin() + static_cast<ptrdiff_t>(sizes_begin);
      from[i] = std::accumulate(from + begin, from + end, uint32_t{0});
    }
    void Resize(size_t n) const {
      ids->resize(begin + n);
      if (sizes != nullptr) sizes->resize(sizes_begin + n);
    }

    std::vector<int32_t>* ids;
    std::vector<uint32_t>* sizes;
    size_t begin;
    size_t sizes_begin;
  };

  const Merge* FindMerge(int32_t left, int32_t right) const;
  const Token* FindWhole(std::string_view text) const;
  size_t SpelledSize(std::string_view piece) const;
  int32_t IdOfCharacter(std::string_view piece, size_t* offset) const;
  bool PushBytes(std::string_view character, const Symbols& symbols) const;
  void SplitIntoBytes(std::string_view piece, const Symbols& symbols) const;
  void SplitIntoCharacters(std::string_view piece, const Symbols& symbols) const;
  void MergeShort(const Symbols& symbols) const;
  void MergeLong(const Symbols& symbols) const;
  void ReplaceLeftOver(const Symbols& symbols) const;
  void TokenizeStretch(std::string_view stretch, std::vector<int32_t>* ids, std::vector<uint32_t>* sizes) const;

  void TabulateCharacters();
  void SpellTokensInBytes();
  void FindNeighbours();
  void MarkWholeTokens();

  Options options_;
  int32_t unk_id_ = -1;
  int32_t num_merges_ = 0;
  int32_t max_rank_ = 0;
  size_t longest_token_ = 0;
  TextMap<Token> tokens_;                        // by spelling; from Finish on, if options.bytes, by the bytes
  std::vector<std::string> left_over_;           // AddCharacter's, by stand-in
  std::vector<int32_t> byte_ids_;                // of <0x00> to <0xFF>, or of the bytes; -1 where there is none
  std::vector<int32_t> character_ids_;           // of the characters below U+0800, -1 where there is none
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by left id << 32 | right id
  Neighbours neighbours_;                        // characters that stand together in a token that merges make
};

}  // namespace quire
