#include "model/constraint/token_vocabulary.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

// The characters of a plain token; kPlainChars + 1 for any other.
int PlainChars(std::string_view bytes) {
  constexpr int kNotPlain = TokenVocabulary::kPlainChars + 1;
  if (!utf8::IsValid(bytes)) return kNotPlain;
  int chars = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\') return kNotPlain;
    chars += (byte & 0xC0) != 0x80;
  }
  return std::min(chars, kNotPlain);
}

// `ids` ordered by their bytes.
TokenVocabulary::Trie MakeTrie(const TokenVocabulary& vocabulary, absl::Span<const int32_t> ids) {
  TokenVocabulary::Trie trie;
  trie.token_lists = {-1};    // index 0: none
  std::vector<int32_t> open;  // the nodes of the bytes of the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      trie.nodes[open.back()].next = static_cast<int32_t>(trie.nodes.size());
    }
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view bytes = vocabulary.TokenBytes(ids[i]);
    if (bytes == last && i > 0) {
      trie.token_lists.back() = ids[i];
      trie.token_lists.push_back(-1);
      continue;
    }
    size_t common = 0;
    while (common < open.size() && common < bytes.size() && bytes[common] == last[common]) ++common;
    close(common);
    for (size_t depth = common; depth < bytes.size(); ++depth) {
      open.push_back(static_cast<int32_t>(trie.nodes.size()));
      trie.nodes.push_back({static_cast<uint8_t>(bytes[depth]), static_cast<uint16_t>(depth + 1), 0, 0});
    }
    trie.nodes.back().tokens = static_cast<int32_t>(trie.token_lists.size());
    trie.token_lists.push_back(ids[i]);
    trie.token_lists.push_back(-1);
    trie.max_depth = std::max(trie.max_depth, static_cast<int32_t>(bytes.size()));
    last = bytes;
  }
  close(0);
  return trie;
}

}  // namespace

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
  std::vector<int32_t> ids, others;
  for (int32_t id = 0; id < size_; ++id) {
    const size_t length = TokenBytes(id).size();
    if (usable[id] && length > 0 && length <= UINT16_MAX && !IsEnd(id)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const int order = TokenBytes(a).compare(TokenBytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  for (auto& mask : plain_tokens_) mask.resize(num_words());
  for (const int32_t id : ids) {
    const int chars = PlainChars(TokenBytes(id));
    if (chars > kPlainChars) others.push_back(id);
    for (int n = chars; n <= kPlainChars; ++n) plain_tokens_[n][id / 32] |= 1u << id % 32;
  }
  trie_ = MakeTrie(*this, ids);
  other_trie_ = MakeTrie(*this, others);
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
