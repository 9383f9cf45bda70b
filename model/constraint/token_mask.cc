#include "model/constraint/token_mask.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

// Masks with fewer tokens are lists: most of them have a handful.
constexpr size_t kMaxListed = 1024;

// Adds all tokens of the trie that can be read from `start`. False if the store gave up.
bool Walk(const TokenVocabulary::Trie& trie, const State* start, StateStore* store, int64_t* steps,
          std::vector<int32_t>* ids) {
  const Network& network = store->network();
  std::vector<const State*> path(trie.max_depth + 1);  // the states after each byte
  path[0] = start;
  const TokenVocabulary::Node* const nodes = trie.nodes.data();
  const int32_t num_nodes = static_cast<int32_t>(trie.nodes.size());
  for (int32_t i = 0; i < num_nodes;) {
    const TokenVocabulary::Node& node = nodes[i];
    const State* next = store->Next(path[node.depth - 1], network.byte_class[node.byte], steps);
    if (next == nullptr) return false;
    if (next == State::Dead()) {
      i = node.next;
      continue;
    }
    path[node.depth] = next;
    for (const int32_t* id = &trie.token_lists[node.tokens]; *id >= 0; ++id) ids->push_back(*id);
    ++i;
  }
  return true;
}

// Finds how long plain texts may get from a state, if that is all there is to say: every text of plain characters up to
// some length can be read, none that is longer. Reads all such texts at once, one character after the other, until no
// state is new.
class PlainChecker {
 public:
  PlainChecker(StateStore* store, int64_t* steps) : store_(store), steps_(steps) {}

  // The length, at most kPlainChars; nullopt if it depends on the characters.
  std::optional<int> Check(const State* start) {
    constexpr int kMost = TokenVocabulary::kPlainChars;
    std::vector<const State*> level = {start};
    absl::flat_hash_set<const State*> seen = {start};
    bool has_loop = false;
    for (int chars = 0; chars < kMost && !level.empty(); ++chars) {
      std::vector<const State*> after;
      size_t num_ends = 0;
      for (const State* state : level) {
        if (ReadsNoPlainChar(state)) {
          ++num_ends;
        } else if (!ReadChar(state, &after)) {
          return std::nullopt;
        }
      }
      if (num_ends > 0) return num_ends == level.size() && !has_loop ? std::make_optional(chars) : std::nullopt;
      level.clear();
      for (const State* state : after) {
        if (seen.insert(state).second) {
          level.push_back(state);
        } else {
          has_loop = true;
        }
      }
      if (seen.size() > 256) return std::nullopt;  // not worth it
    }
    return kMost;
  }

 private:
  bool ReadsNoPlainChar(const State* state) {
    const Network& network = store_->network();
    for (int byte = 0x20; byte <= 0xF4; ++byte) {
      if (byte == '"' || byte == '\\') continue;
      if (store_->Next(state, network.byte_class[byte], steps_) != State::Dead()) return false;
    }
    return true;
  }

  // Appends all states after one plain character. False if some character cannot be read.
  bool ReadChar(const State* state, std::vector<const State*>* after) {
    return ReadBytes(state, 0x20, 0x21, after) && ReadBytes(state, 0x23, 0x5B, after) &&
           ReadBytes(state, 0x5D, 0x7F, after) && ReadTail(state, 0xC2, 0xDF, 1, after) &&
           ReadTailOf(state, 0xE0, 0xA0, 0xBF, 1, after) && ReadTail(state, 0xE1, 0xEC, 2, after) &&
           ReadTailOf(state, 0xED, 0x80, 0x9F, 1, after) && ReadTail(state, 0xEE, 0xEF, 2, after) &&
           ReadTailOf(state, 0xF0, 0x90, 0xBF, 2, after) && ReadTail(state, 0xF1, 0xF3, 3, after) &&
           ReadTailOf(state, 0xF4, 0x80, 0x8F, 2, after);
  }

  // first to last, then `tail` continuation bytes.
  bool ReadTail(const State* state, int first, int last, int tail, std::vector<const State*>* after) {
    std::vector<const State*> states;
    if (!ReadBytes(state, first, last, &states)) return false;
    for (; tail > 0; --tail) {
      std::vector<const State*> next;
      for (const State* s : states) {
        if (!ReadBytes(s, 0x80, 0xBF, &next)) return false;
      }
      states = std::move(next);
    }
    for (const State* s : states) Append(s, after);
    return true;
  }

  // `lead`, a second byte from second to last, then `tail` continuation bytes.
  bool ReadTailOf(const State* state, int lead, int second, int last, int tail, std::vector<const State*>* after) {
    std::vector<const State*> states;
    if (!ReadBytes(state, lead, lead, &states)) return false;
    return ReadTail(states[0], second, last, tail, after);
  }

  // Appends the states after one byte from first to last. False if some byte cannot be read.
  bool ReadBytes(const State* state, int first, int last, std::vector<const State*>* after) {
    const Network& network = store_->network();
    for (int byte = first; byte <= last; ++byte) {
      if (byte > first && network.byte_class[byte] == network.byte_class[byte - 1]) continue;
      const State* next = store_->Next(state, network.byte_class[byte], steps_);
      if (next == nullptr || next == State::Dead()) return false;
      Append(next, after);
    }
    return true;
  }

  static void Append(const State* state, std::vector<const State*>* states) {
    if (std::find(states->begin(), states->end(), state) == states->end()) states->push_back(state);
  }

  StateStore* store_;
  int64_t* steps_;
};

}  // namespace

const TokenMask* FindTokenMask(const TokenVocabulary& vocabulary, const State* state, StateStore* store,
                               int64_t* steps) {
  if (const TokenMask* known = state->mask.load(std::memory_order_acquire)) return known;
  std::vector<int32_t> ids;
  const std::optional<int> plain_chars = PlainChecker(store, steps).Check(state);
  if (!Walk(plain_chars ? vocabulary.other_trie() : vocabulary.trie(), state, store, steps, &ids)) return nullptr;
  if (state->is_accepting) ids.insert(ids.end(), vocabulary.end_ids().begin(), vocabulary.end_ids().end());

  TokenMask mask;
  if (plain_chars.value_or(0) == 0 && ids.size() <= kMaxListed) {
    mask.num_allowed = static_cast<int32_t>(ids.size());
    mask.ids = {ids.begin(), ids.end()};
    return store->SetMask(state, std::move(mask));
  }
  if (plain_chars) {
    mask.words = vocabulary.plain_tokens(*plain_chars);
  } else {
    mask.words.resize(vocabulary.num_words());
  }
  for (const int32_t id : ids) mask.words[id / 32] |= 1u << id % 32;
  for (const uint32_t word : mask.words) mask.num_allowed += std::popcount(word);
  return store->SetMask(state, std::move(mask));
}

int32_t OnlyToken(const TokenMask& mask) {
  if (!mask.ids.empty()) return mask.ids[0];
  size_t word = 0;
  while (mask.words[word] == 0) ++word;
  return static_cast<int32_t>(word) * 32 + std::countr_zero(mask.words[word]);
}

void WriteMask(const TokenMask& mask, absl::Span<uint32_t> words) {
  if (!mask.words.empty()) {
    std::copy(mask.words.begin(), mask.words.end(), words.begin());
    return;
  }
  std::fill(words.begin(), words.end(), 0);
  for (const int32_t id : mask.ids) words[id / 32] |= 1u << id % 32;
}

}  // namespace quire::constraint
