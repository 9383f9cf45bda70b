#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

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

// Finds added tokens in text: leftmost first, of those the longest. Immutable, safe to use from many threads at once.
class AddedTokenMatcher {
 public:
  // A stretch of the text: a token, or what is between tokens (id -1).
  struct Part {
    int32_t id = -1;
    size_t begin = 0;
    size_t end = 0;
  };

  AddedTokenMatcher() : AddedTokenMatcher(std::vector<AddedToken>()) {}
  // Of two tokens with the same content the first counts; empty content is never found.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // The parts of `text`, in order, none empty but for tokens. `text` must be valid UTF-8.
  // `is_literal`, if it is not empty, tells of bytes [begin, end) whether no special token may stand there.
  using IsLiteral = std::function<bool(size_t begin, size_t end)>;
  std::vector<Part> Split(std::string_view text, const IsLiteral& is_literal = nullptr) const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };

  const AddedToken* LongestAt(std::string_view rest) const;

  std::vector<AddedToken> tokens_;            // by content
  std::array<Range, 256> with_first_byte_{};  // of tokens_
};

}  // namespace quire
