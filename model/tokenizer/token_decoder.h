#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/pattern.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

// What a token stands for, and how tokens are joined. Built by one call for each step of the file's decoder, in order.
class TokenDecoder {
 public:
  struct Piece {
    std::string bytes;
    bool is_byte = false;  // of a run that JoinRules::byte_runs speaks of
  };

  // Steps on each token alone. kUnimplemented after a step that joins tokens, as the reference would then work on text
  // that is not there yet while it is streamed.
  absl::Status AddReplace(Pattern pattern, std::string content);
  // Each mark is a space, but in the first token, if `drop_first`, nothing.
  absl::Status AddMetaspace(std::string mark, bool drop_first);
  // Of each token, or of the joined text; kUnimplemented to take from the end of that.
  absl::Status AddStrip(std::string character, int64_t start, int64_t stop);
  // Steps that join.
  absl::Status AddByteFallback();
  absl::Status AddByteLevel();
  absl::Status AddFuse();

  // Of one token's spelling. kResourceExhausted if a regular expression gave up.
  absl::StatusOr<Piece> Decode(std::string_view spelling, bool is_first) const;
  bool first_differs() const { return first_differs_; }
  const JoinRules& join_rules() const { return rules_; }

 private:
  enum class Joined { kNo, kByteRuns, kAll };

  struct Step {
    std::optional<Pattern> replace = std::nullopt;
    std::string text = {};  // the content, the mark or the character
    bool is_metaspace = false;
    bool drop_first = false;
    int64_t start = 0;
    int64_t stop = 0;
  };

  absl::Status CheckNotJoined(const char* name) const;
  absl::Status ApplyReplace(const Step& step, std::string* text) const;

  std::vector<Step> steps_;
  JoinRules rules_;
  Joined joined_ = Joined::kNo;
  bool byte_level_ = false;
  bool first_differs_ = false;
};

}  // namespace quire
