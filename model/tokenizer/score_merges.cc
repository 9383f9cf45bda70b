#include "model/tokenizer/score_merges.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "model/tokenizer/utf8.h"

namespace quire {
namespace {

// `use(left, right)` for each cut of `text` between two characters.
template <typename Use>
void ForEachCut(std::string_view text, Use use) {
  if (text.empty()) return;
  size_t cut = 0;
  utf8::Decode(text, &cut);
  while (cut < text.size()) {
    use(text.substr(0, cut), text.substr(cut));
    utf8::Decode(text, &cut);
  }
}

size_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace

void AddMergesByScore(const std::vector<std::string_view>& texts, const std::vector<double>& scores, Bpe* bpe) {
  std::vector<double> descending = scores;
  std::sort(descending.begin(), descending.end(), std::greater<>());
  descending.erase(std::unique(descending.begin(), descending.end()), descending.end());
  for (const std::string_view text : texts) {
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      utf8::Decode(text, &i);
      const std::string_view character = text.substr(begin, i - begin);
      if (bpe->IdOf(character) < 0) bpe->AddCharacter(character);
    }
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto at = std::lower_bound(descending.begin(), descending.end(), scores[i], std::greater<>());
    const auto rank = static_cast<int32_t>(at - descending.begin());
    ForEachCut(texts[i], [&](std::string_view left, std::string_view right) {
      const int32_t left_id = bpe->IdOf(left);
      const int32_t right_id = left_id < 0 ? -1 : bpe->IdOf(right);
      if (right_id >= 0) bpe->AddRankedMerge(left_id, right_id, static_cast<int32_t>(i), rank);
    });
  }
}

std::vector<std::pair<std::string_view, std::string_view>> ListMergesByScore(const std::vector<std::string_view>& texts,
                                                                             const std::vector<double>& scores) {
  absl::flat_hash_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < texts.size(); ++i) ids.emplace(texts[i], static_cast<int32_t>(i));
  struct Merge {
    double score;
    size_t left_size;  // characters
    size_t right_size;
    int32_t made;
    int32_t left;
    int32_t right;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < texts.size(); ++i) {
    ForEachCut(texts[i], [&](std::string_view left, std::string_view right) {
      const auto left_at = ids.find(left);
      const auto right_at = left_at == ids.end() ? ids.end() : ids.find(right);
      if (right_at == ids.end()) return;
      merges.push_back({scores[i], CountCharacters(left), CountCharacters(right), static_cast<int32_t>(i),
                        left_at->second, right_at->second});
    });
  }
  const auto key = [](const Merge& m) {
    return std::tuple(-m.score, -static_cast<int64_t>(m.left_size), -static_cast<int64_t>(m.right_size), m.made, m.left,
                      m.right);
  };
  std::sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) { return key(a) < key(b); });
  std::vector<std::pair<std::string_view, std::string_view>> list;
  list.reserve(merges.size());
  for (const Merge& merge : merges) list.emplace_back(texts[merge.left], texts[merge.right]);
  return list;
}

}  // namespace quire
