#include "model/constraint/token_vocabulary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

struct PlainPrefix {
  int chars = 0;  // at most kPlainChars
  size_t bytes = 0;
};

PlainPrefix FindPlainPrefix(std::string_view bytes) {
  PlainPrefix prefix;
  while (prefix.chars < TokenVocabulary::kPlainChars && prefix.bytes < bytes.size()) {
    const auto byte = static_cast<unsigned char>(bytes[prefix.bytes]);
    const utf8::Part part = utf8::NextPart(bytes.substr(prefix.bytes));
    if (!part.whole || byte < 0x20 || byte == '"' || byte == '\\') break;
    ++prefix.chars;
    prefix.bytes += part.size;
  }
  return prefix;
}

// A token, or what follows some prefix of it.
struct Entry {
  std::string_view bytes;  // not empty
  int32_t id = 0;
};

TokenVocabulary::Trie MakeTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int order = a.bytes.compare(b.bytes);
    return order != 0 ? order < 0 : a.id < b.id;
  });
  TokenVocabulary::Trie trie;
  std::vector<int32_t> open;  // the nodes of the bytes of the last entry
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      const int32_t node = open.back();
      trie.nodes[node].next = static_cast<int32_t>(trie.nodes.size());
      if (open.size() == 1) continue;
      const uint64_t group = uint64_t{1} << TokenVocabulary::GroupOfByte()[trie.nodes[node].byte];
      trie.groups_below[open[open.size() - 2]] |= group | trie.groups_below[node];
    }
  };
  for (const Entry& entry : entries) {
    size_t common = 0;
    while (common < open.size() && common < entry.bytes.size() && entry.bytes[common] == last[common]) ++common;
    close(common);
    for (size_t depth = common; depth < entry.bytes.size(); ++depth) {
      open.push_back(static_cast<int32_t>(trie.nodes.size()));
      trie.nodes.push_back({static_cast<uint8_t>(entry.bytes[depth]), static_cast<uint16_t>(depth + 1), 0,
                            static_cast<int32_t>(trie.ids.size())});
      trie.groups_below.push_back(0);
    }
    trie.ids.push_back(entry.id);
    trie.max_depth = std::max(trie.max_depth, static_cast<int32_t>(entry.bytes.size()));
    last = entry.bytes;
  }
  close(0);
  trie.nodes.push_back({0, 0, 0, static_cast<int32_t>(trie.ids.size())});
  return trie;
}

}  // namespace

// Digits, letters of hexadecimal numbers and other ones, every other ASCII character that is printed, and the roles
// that bytes have in UTF-8.
const std::array<uint8_t, 256>& TokenVocabulary::GroupOfByte() {
  static const auto groups = [] {
    std::array<uint8_t, 256> of_byte{};
    uint8_t group = 0;
    const auto add = [&](int first, int last) {
      std::fill(of_byte.begin() + first, of_byte.begin() + last + 1, group++);
    };
    const auto add_each = [&](int first, int last) {
      for (int byte = first; byte <= last; ++byte) add(byte, byte);
    };
    add(0x00, 0xFF);  // what is left: most control characters, what UTF-8 does not have
    add_each('\t', '\n'), add_each('\r', '\r');
    add_each(' ', '/'), add('0', '9'), add_each(':', '@');
    add('A', 'F'), add('G', 'Z'), add_each('[', '`');
    add('a', 'f'), add('g', 'z'), add_each('{', '~');
    add(0x80, 0xBF), add(0xC2, 0xDF), add(0xE0, 0xEF), add(0xF0, 0xF4);
    QUIRE_CHECK(group <= kNumGroups);
    return of_byte;
  }();
  return groups;
}

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer, absl::Span<const int32_t> end_ids, int32_t size)
    : size_(size), end_ids_(end_ids.begin(), end_ids.end()) {
  std::vector<bool> usable(size_);
  offsets_.push_back(0);
  for (int32_t id = 0; id < size_; ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    const bool is_special = tokenizer.IsSpecial(id) && !bytes.empty();
    if (is_special) {
      bytes_.push_back(kSpecial);
      special_ids_.push_back(id);
    }
    usable[id] = is_special || bytes.find(kSpecial) == std::string_view::npos;
    if (usable[id]) bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    offsets_.push_back(static_cast<int32_t>(bytes_.size()));
  }
  Build(usable);
  special_ids_.erase(std::remove_if(special_ids_.begin(), special_ids_.end(), [this](int32_t id) { return IsEnd(id); }),
                     special_ids_.end());
}

TokenVocabulary::TokenVocabulary(absl::Span<const std::string_view> tokens, absl::Span<const int32_t> end_ids)
    : size_(static_cast<int32_t>(tokens.size())), end_ids_(end_ids.begin(), end_ids.end()) {
  offsets_.push_back(0);
  for (const std::string_view token : tokens) {
    bytes_.insert(bytes_.end(), token.begin(), token.end());
    offsets_.push_back(static_cast<int32_t>(bytes_.size()));
  }
  Build(std::vector<bool>(size_, true));
}

void TokenVocabulary::Build(const std::vector<bool>& usable) {
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  end_ids_.erase(std::remove_if(end_ids_.begin(), end_ids_.end(), [&](int32_t id) { return id < 0 || id >= size_; }),
                 end_ids_.end());
  for (TokenMask& mask : plain_tokens_) mask.words.resize(num_words());
  std::vector<Entry> tokens, all_remainders;
  std::array<std::vector<Entry>, kPlainChars + 1> remainders;
  for (int32_t id = 0; id < size_; ++id) {
    const std::string_view bytes = TokenBytes(id);
    if (!usable[id] || bytes.empty() || bytes.size() > UINT16_MAX || IsEnd(id)) continue;
    tokens.push_back({bytes, id});
    const PlainPrefix prefix = FindPlainPrefix(bytes);
    if (prefix.bytes < bytes.size()) {
      remainders[prefix.chars].push_back({bytes.substr(prefix.bytes), id});
      all_remainders.push_back(remainders[prefix.chars].back());
      continue;
    }
    for (int chars = prefix.chars; chars <= kPlainChars; ++chars) {
      plain_tokens_[chars].words[id / 32] |= 1u << id % 32;
      ++plain_tokens_[chars].num_allowed;
    }
  }
  trie_ = MakeTrie(std::move(tokens));
  for (int chars = 0; chars <= kPlainChars; ++chars) remainders_[chars] = MakeTrie(std::move(remainders[chars]));
  all_remainders_ = MakeTrie(std::move(all_remainders));
}

bool TokenVocabulary::IsEnd(int32_t id) const { return std::binary_search(end_ids_.begin(), end_ids_.end(), id); }

std::string TokenVocabulary::WithSpecialTokens(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    std::string_view longest;
    for (const int32_t id : special_ids_) {
      const std::string_view spelling = TokenBytes(id).substr(1);
      if (spelling.size() > longest.size() && text.substr(0, spelling.size()) == spelling) longest = spelling;
    }
    if (!longest.empty()) out += kSpecial;
    const size_t size = std::max<size_t>(longest.size(), 1);
    out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

std::string_view TokenVocabulary::TokenBytes(int32_t id) const {
  if (id < 0 || id >= size_) return {};
  return {bytes_.data() + offsets_[id], static_cast<size_t>(offsets_[id + 1] - offsets_[id])};
}

}  // namespace quire::constraint
