#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// All tokens of a tokenizer, those of the model and the added ones. Ids may have gaps. Immutable once made.
class Vocabulary {
 public:
  // Ids are below this, far above any real vocabulary: what is counted by id stays allocatable.
  static constexpr int64_t kMaxTokens = 1 << 24;

  struct Token {
    int32_t id = 0;
    std::string text;              // as the file spells it
    std::string bytes = {};        // what it stands for in the text
    std::string first_bytes = {};  // where it is the first token of all, if that differs (TokenDecoder::first_differs)
    bool is_byte = false;          // one of a run of byte tokens (JoinRules::byte_runs)
    bool special = false;
  };

  // kInvalidArgument naming an id that two tokens share, or a spelling that two tokens share.
  static absl::StatusOr<Vocabulary> Create(std::vector<Token> tokens);

  // kInvalidArgument naming the token if the id is not in [0, kMaxTokens).
  static absl::Status CheckId(int64_t id, std::string_view text);

  const Token* Find(int32_t id) const;        // null if there is none
  int32_t IdOf(std::string_view text) const;  // -1 if there is none
  int32_t size() const { return tokens_.empty() ? 0 : tokens_.back().id + 1; }
  const std::vector<Token>& tokens() const { return tokens_; }  // by ascending id

 private:
  std::vector<Token> tokens_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;  // keys are views of tokens_
};

}  // namespace quire
