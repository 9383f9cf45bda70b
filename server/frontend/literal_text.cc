#include "server/frontend/literal_text.h"

#include <algorithm>
#include <bitset>
#include <set>
#include <utility>

#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// U+10600 to U+1063F in UTF-8: f0 90 98 80 to f0 90 98 bf.
constexpr std::string_view kLetterPrefix = "\xf0\x90\x98";
constexpr int kNumLetters = 64;
using Letters = std::bitset<kNumLetters>;

void CollectFromText(std::string_view text, Letters* letters) {
  for (size_t at = text.find(kLetterPrefix); at != std::string_view::npos && at + 3 < text.size();
       at = text.find(kLetterPrefix, at + 4)) {
    letters->set(static_cast<uint8_t>(text[at + 3]) & 0x3F);
  }
}

void CollectLetters(const Json& value, Letters* letters) {
  if (value.is_string()) CollectFromText(value.get_ref<const std::string&>(), letters);
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      CollectFromText(key, letters);
      CollectLetters(member, letters);
    }
  }
  if (value.is_array()) {
    for (const Json& item : value) CollectLetters(item, letters);
  }
}

uint8_t Byte(char c) { return static_cast<uint8_t>(c); }

size_t CharacterSize(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) ++size;
  return size;
}

// Whether one of `spellings`, sorted and all of the same first byte, which `rest` has too, begins `rest`; or is begun
// by it, if `may_go_on`. Looks at no more of rest than the longest of them has, and not at each of them: there may be
// thousands, and text of nothing but '<'.
bool BeginsWithOne(const std::vector<std::string>& spellings, std::string_view rest, bool may_go_on) {
  auto begin = spellings.begin(), end = spellings.end();
  for (size_t size = 1; begin != end; ++size) {
    // Those from begin to end start with `size` bytes of rest; one that ends there is the first of them.
    if (begin->size() == size) return true;
    if (size == rest.size()) return may_go_on;
    const auto before = [size](const std::string& spelling, char c) { return Byte(spelling[size]) < Byte(c); };
    const auto behind = [size](char c, const std::string& spelling) { return Byte(c) < Byte(spelling[size]); };
    begin = std::lower_bound(begin, end, rest[size], before);
    end = std::upper_bound(begin, end, rest[size], behind);
  }
  return false;
}

}  // namespace

LiteralText::LiteralText(const Tokenizer& tokenizer) {
  std::set<std::string> spellings, endings;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view token = tokenizer.TokenBytes(id);
    if (!tokenizer.IsSpecial(id) || token.empty()) continue;
    spellings.emplace(token);
    for (size_t i = CharacterSize(token); i < token.size(); i += CharacterSize(token.substr(i)))
      endings.emplace(token.substr(i));
  }
  for (const std::string& spelling : spellings) tokens_[Byte(spelling[0])].push_back(spelling);
  for (const std::string& ending : endings) endings_[Byte(ending[0])].push_back(ending);
}

absl::StatusOr<std::string> LiteralText::Mark(Json* messages, const std::vector<Json*>& others) const {
  Letters used;
  CollectLetters(*messages, &used);
  for (const Json* other : others) CollectLetters(*other, &used);
  if (used.all()) return absl::InvalidArgumentError("messages: every letter from U+10600 to U+1063F occurs in them");
  int letter = 0;
  while (used.test(letter)) ++letter;
  std::string mark(kLetterPrefix);
  mark += static_cast<char>(0x80 | letter);
  for (Json& message : *messages) {
    Json role = std::exchange(message["role"], nullptr);
    MarkValue(mark, &message);
    message["role"] = std::move(role);
  }
  for (Json* other : others) MarkValue(mark, other);
  return mark;
}

void LiteralText::MarkValue(const std::string& mark, Json* value) const {
  if (value->is_string()) {
    MarkText(mark, &value->get_ref<std::string&>());
  } else if (value->is_array()) {
    for (Json& item : *value) MarkValue(mark, &item);
  } else if (value->is_object()) {
    Json marked = Json::object();
    for (auto& [key, member] : value->items()) {
      std::string name = key;
      MarkText(mark, &name);
      MarkValue(mark, &member);
      marked[name] = std::move(member);
    }
    *value = std::move(marked);
  }
}

void LiteralText::MarkText(const std::string& mark, std::string* text) const {
  const std::string_view all = *text;
  const auto spells = [&](size_t at) {
    const std::string_view rest = all.substr(at);
    if (BeginsWithOne(tokens_[Byte(rest[0])], rest, /*may_go_on=*/true)) return true;
    return at == 0 && BeginsWithOne(endings_[Byte(rest[0])], rest, /*may_go_on=*/false);
  };
  std::string marked;
  size_t done = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!spells(i)) continue;
    const size_t end = i + CharacterSize(all.substr(i));
    marked.append(all.substr(done, end - done)).append(mark);
    done = end;
  }
  if (done == 0) return;
  marked.append(all.substr(done));
  *text = std::move(marked);
}

std::vector<TextRange> LiteralText::TakeMarks(const std::string& mark, std::string* text) {
  std::vector<TextRange> literal;
  std::string bare;
  size_t done = 0;
  for (size_t at = text->find(mark); at != std::string::npos; at = text->find(mark, done)) {
    bare.append(*text, done, at - done);
    done = at + mark.size();
    size_t begin = bare.size();
    while (begin > 0 && (static_cast<uint8_t>(bare[--begin]) & 0xC0) == 0x80) continue;
    if (begin < bare.size() && (literal.empty() || literal.back().begin != begin))
      literal.push_back({begin, bare.size()});
  }
  bare.append(*text, done);
  *text = std::move(bare);
  return literal;
}

}  // namespace quire
