#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <functional>

#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

// Offset at which the last character of a non-empty `text` begins.
size_t LastCharacter(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

char32_t CharacterAt(std::string_view text, size_t offset) { return utf8::Decode(text, &offset); }

bool EndsWithWord(std::string_view text) {
  return !text.empty() && IsWordCharacter(CharacterAt(text, LastCharacter(text)));
}

bool StartsWithWord(std::string_view text) { return !text.empty() && IsWordCharacter(CharacterAt(text, 0)); }

// Length of `text` without the white space at its end.
size_t SizeWithoutTrailingSpace(std::string_view text) {
  while (!text.empty()) {
    const size_t last = LastCharacter(text);
    if (!IsWhiteSpace(CharacterAt(text, last))) break;
    text = text.substr(0, last);
  }
  return text.size();
}

size_t SizeOfLeadingSpace(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    size_t next = size;
    if (!IsWhiteSpace(utf8::Decode(text, &next))) break;
    size = next;
  }
  return size;
}

}  // namespace

void AddedTokenMatcher::Add(AddedToken token) {
  if (token.content.empty() || !by_content_.emplace(token.content, tokens_.size()).second) return;
  std::vector<size_t>& lengths = lengths_by_first_byte_[static_cast<uint8_t>(token.content[0])];
  const auto at = std::lower_bound(lengths.begin(), lengths.end(), token.content.size(), std::greater<>());
  if (at == lengths.end() || *at != token.content.size()) lengths.insert(at, token.content.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view rest) const {
  for (const size_t length : lengths_by_first_byte_[static_cast<uint8_t>(rest[0])]) {
    if (length > rest.size()) continue;
    const auto at = by_content_.find(rest.substr(0, length));
    if (at != by_content_.end()) return &tokens_[at->second];
  }
  return nullptr;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;  // up to here the text is in `parts`
  for (size_t i = 0; i < text.size();) {
    const AddedToken* token = LongestAt(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i;
    size_t end = i + token->content.size();
    i = end;
    if (token->single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(SizeWithoutTrailingSpace(text.substr(0, begin)), done);
    if (token->rstrip) end += SizeOfLeadingSpace(text.substr(end));
    if (done < begin) parts.push_back({-1, text.substr(done, begin - done)});
    parts.push_back({token->id, text.substr(begin, end - begin)});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, text.substr(done)});
  return parts;
}

}  // namespace quire
