#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
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
  // After the last token and merge. kInvalidArgument if unk_token is no token.
  absl::Status Finish();

  int32_t IdOf(std::string_view text) const;  // -1 if there is none

  // Appends the ids of `piece`, valid UTF-8 of less than 2^31 bytes.
  void Tokenize(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };

  const Merge* FindMerge(int32_t left, int32_t right) const;
  int32_t IdOfCharacter(std::string_view piece, size_t* offset) const;
  void SplitIntoCharacters(std::string_view piece, std::vector<int32_t>* ids) const;
  bool AppendBytes(std::string_view character, std::vector<int32_t>* ids) const;
  void MergeShort(std::vector<int32_t>* ids, size_t begin) const;
  void MergeLong(std::vector<int32_t>* ids, size_t begin) const;

  Options options_;
  int32_t unk_id_ = -1;
  int32_t num_merges_ = 0;
  TextMap<int32_t> ids_;
  std::vector<int32_t> byte_ids_;                // of <0x00> to <0xFF>, -1 where there is none
  std::vector<int32_t> character_ids_;           // of the characters below U+0800, -1 where there is none
  absl::flat_hash_map<uint64_t, Merge> merges_;  // by left id << 32 | right id
};

}  // namespace quire
