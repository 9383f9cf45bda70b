#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

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

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    Range& range = with_first_byte_[static_cast<uint8_t>(tokens_[i].content[0])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view rest) const {
  // The tokens that agree with `rest` up to `depth`: a stretch of the sorted ones, the shortest first.
  auto [begin, end] = with_first_byte_[static_cast<uint8_t>(rest[0])];
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; begin < end; ++depth) {
    if (tokens_[begin].content.size() == depth) longest = &tokens_[begin++];
    if (depth == rest.size()) break;
    const auto wanted = static_cast<uint8_t>(rest[depth]);
    const auto byte_at_depth = [depth](const AddedToken& token) { return static_cast<uint8_t>(token.content[depth]); };
    const auto first = tokens_.begin();
    const auto low = std::partition_point(first + begin, first + end,
                                          [&](const AddedToken& token) { return byte_at_depth(token) < wanted; });
    const auto high =
        std::partition_point(low, first + end, [&](const AddedToken& token) { return byte_at_depth(token) == wanted; });
    begin = low - first;
    end = high - first;
  }
  return longest;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::Split(std::string_view text,
                                                              const IsLiteral& is_literal) const {
  std::vector<Part> parts;
  size_t done = 0;  // up to here the text is in `parts`
  for (size_t i = 0; i < text.size();) {
    if (with_first_byte_[static_cast<uint8_t>(text[i])].end == 0) {
      ++i;
      continue;
    }
    const AddedToken* token = LongestAt(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    size_t begin = i;
    size_t end = i + token->content.size();
    if (token->special && is_literal && is_literal(begin, end)) {
      ++i;
      continue;
    }
    i = end;
    if (token->single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token->lstrip) begin = std::max(SizeWithoutTrailingSpace(text.substr(0, begin)), done);
    if (token->rstrip) end += SizeOfLeadingSpace(text.substr(end));
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token->id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

}  // namespace quire
