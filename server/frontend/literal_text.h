#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace quire {

// Keeps the special tokens that a conversation spells apart from those that its template writes. Before the rendering
// a mark is put into every text of the conversation that spells one, behind its first character, and where a text ends
// or begins with a part of one, which a neighbour could complete. Behind it the marks are taken out again and tell
// where the tokenizer must not see special tokens. A mark is a letter (of Linear A) that does not occur in the
// conversation: templates carry it along like any other, but do not find the spelling of the token any more, which is
// what it means to be text. Immutable, any thread.
class LiteralText {
 public:
  LiteralText() = default;
  explicit LiteralText(const Tokenizer& tokenizer);

  // Marks all texts of an array of messages, but for their roles, and of `others`, keys too. Returns the mark.
  // kInvalidArgument if the conversation has all letters that could be one.
  absl::StatusOr<std::string> Mark(nlohmann::ordered_json* messages,
                                   const std::vector<nlohmann::ordered_json*>& others) const;

  // Takes the marks out of *text. Returns the characters that stood before them, in order.
  static std::vector<TextRange> TakeMarks(const std::string& mark, std::string* text);

 private:
  void MarkText(const std::string& mark, std::string* text) const;
  void MarkValue(const std::string& mark, nlohmann::ordered_json* value) const;

  std::array<std::vector<std::string>, 256> tokens_;   // spellings, sorted, by first byte
  std::array<std::vector<std::string>, 256> endings_;  // what they end with, but for the whole; by first byte
};

}  // namespace quire
