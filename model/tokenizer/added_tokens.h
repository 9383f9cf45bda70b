#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/text_map.h"

namespace quire {

// A token that is recognised as a whole inside text, whatever the model would make of it.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out of decoded text on request
  bool normalized = false;   // looked for in normalized text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
};

// Finds added tokens in text: leftmost first, of those the longest. Immutable once made, safe to use from many threads
// at once.
class AddedTokenMatcher {
 public:
  // A stretch of the text: a token, or what is between tokens (id -1).
  struct Part {
    int32_t id = -1;
    std::string_view text;
  };

  // Before the first Split. Of two tokens with the same content the first counts; empty content is never found.
  void Add(AddedToken token);

  bool empty() const { return tokens_.empty(); }

  // The parts of `text`, in order, none empty but for tokens. `text` must be valid UTF-8.
  std::vector<Part> Split(std::string_view text) const;

 private:
  const AddedToken* LongestAt(std::string_view rest) const;

  std::vector<AddedToken> tokens_;
  TextMap<size_t> by_content_;
  std::array<std::vector<size_t>, 256> lengths_by_first_byte_;  // descending, each once
};

}  // namespace quire
