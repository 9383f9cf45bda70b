#include "model/constraint/token_mask.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

namespace quire::constraint {
namespace {

// Masks with fewer tokens are lists: most of them have a handful.
constexpr size_t kMaxListed = 1024;

// Reads one byte in many states.
class Reader {
 public:
  Reader(StateStore* store, int64_t* steps)
      : store_(store), steps_(steps), byte_class_(store->network().byte_class.data()) {}

  const State* dead() const { return dead_; }
  // As StateStore::Next, but for Dead() too.
  const State* Read(const State* state, uint8_t byte) const {
    return state == dead_ ? state : store_->Next(state, byte_class_[byte], steps_);
  }
  // The state after any of the bytes from first to last; nullopt if it depends on the byte, or the store gave up.
  std::optional<const State*> ReadAny(const State* state, int first, int last) const {
    const State* after = Read(state, static_cast<uint8_t>(first));
    for (int byte = first + 1; byte <= last && after != nullptr; ++byte) {
      if (byte_class_[byte] == byte_class_[byte - 1]) continue;
      if (Read(state, static_cast<uint8_t>(byte)) != after) return std::nullopt;
    }
    return after != nullptr ? std::make_optional(after) : std::nullopt;
  }
  // One of `groups` (of bytes, as bits) with a byte that does not lead back to `state`, as a bit; 0 if there is none.
  uint64_t FindGroupThatLeaves(const State* state, uint64_t groups) const {
    const auto& group_of_byte = TokenVocabulary::GroupOfByte();
    for (int byte = 0; byte < 256 && groups != 0; ++byte) {
      const uint64_t group = uint64_t{1} << group_of_byte[byte];
      if ((groups & group) != 0 && Read(state, static_cast<uint8_t>(byte)) != state) return group;
    }
    return 0;
  }
  // The state after any plain character; nullopt as above.
  std::optional<const State*> ReadPlainChar(const State* state) const {
    // Bytes that may begin a character, and its other ones: all from 0x80 to 0xBF, but for the second byte here.
    struct Form {
      uint8_t first, last, second_first, second_last;
      int length;
    };
    static constexpr Form kForms[] = {
        {0x20, 0x21, 0, 0, 1},       {0x23, 0x5B, 0, 0, 1},       {0x5D, 0x7F, 0, 0, 1},
        {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
        {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
        {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
    std::optional<const State*> result;
    for (const Form& form : kForms) {
      std::optional<const State*> at = ReadAny(state, form.first, form.last);
      for (int i = 1; i < form.length && at; ++i) {
        at = ReadAny(*at, i == 1 ? form.second_first : 0x80, i == 1 ? form.second_last : 0xBF);
      }
      if (!at || (result && *at != *result)) return std::nullopt;
      result = at;
    }
    return result;
  }

 private:
  StateStore* const store_;
  int64_t* const steps_;
  const uint8_t* const byte_class_;
  const State* const dead_ = State::Dead();
};

// A mask as what it adds to another one, and takes from it.
struct Difference {
  std::vector<int32_t> added, removed;
};

// Walks a trie of texts through the automaton from two states at once, and finds which tokens can be read from `start`
// but not from `other`, and the other way round; below nodes where both have come to the same state there are none.
// Where `other` is Dead() that is all that can be read. False if the store gave up.
bool Walk(const TokenVocabulary::Trie& trie, const State* start, const State* other, const Reader& reader,
          Difference* difference) {
  struct Pair {
    const State *state, *other;
  };
  std::vector<Pair> path(trie.max_depth + 1);  // after each byte
  path[0] = {start, other};
  const int32_t num_nodes = static_cast<int32_t>(trie.nodes.size()) - 1;
  const auto append_ids = [&](int32_t node, int32_t end, std::vector<int32_t>* ids) {
    ids->insert(ids->end(), trie.ids.begin() + trie.nodes[node].first_id, trie.ids.begin() + trie.nodes[end].first_id);
  };
  const State* loop = nullptr;        // a state with bytes that lead back to it
  uint64_t staying = 0, leaving = 0;  // the groups of which that is known: all bytes, some byte does not
  for (int32_t i = 0; i < num_nodes;) {
    const TokenVocabulary::Node* node = &trie.nodes[i];
    const Pair& before = path[node->depth - 1];
    const Pair after = {reader.Read(before.state, node->byte), reader.Read(before.other, node->byte)};
    if (after.state == nullptr || after.other == nullptr) return false;
    if (after.state == after.other) {
      i = node->next;
      continue;
    }
    path[node->depth] = after;
    int32_t end = i + 1;  // of the nodes that are dealt with
    if (after.other == reader.dead()) {
      if (after.state == before.state) {
        if (std::exchange(loop, after.state) != after.state) staying = leaving = 0;
        const uint64_t below = trie.groups_below[i];
        if ((below & leaving) == 0) leaving |= reader.FindGroupThatLeaves(loop, below & ~staying);
        if ((below & leaving) == 0) {
          staying |= below;
          end = node->next;
        }
      }
      append_ids(i, end, &difference->added);
    } else if (after.state == reader.dead()) {
      append_ids(i, end, &difference->removed);
    }
    i = end;
  }
  return true;
}

TokenMask Apply(const TokenMask& base, const Difference& difference, int64_t num_words) {
  TokenMask mask;
  mask.num_allowed = base.num_allowed + static_cast<int32_t>(difference.added.size()) -
                     static_cast<int32_t>(difference.removed.size());
  if (base.num_allowed == 0 && difference.added.size() <= kMaxListed) {
    mask.ids = {difference.added.begin(), difference.added.end()};
    return mask;
  }
  mask.words.resize(num_words);
  WriteMask(base, absl::MakeSpan(mask.words));
  for (const int32_t id : difference.added) mask.words[id / 32] |= 1u << id % 32;
  for (const int32_t id : difference.removed) mask.words[id / 32] &= ~(1u << id % 32);
  return mask;
}

// The states after 0, 1, ... plain characters, whichever they are: as many as can be read, at most kPlainChars. Empty
// if they depend on the characters.
std::vector<const State*> FindPlainStates(const State* start, const Reader& reader) {
  std::vector<const State*> states = {start};
  while (states.size() <= TokenVocabulary::kPlainChars) {
    const std::optional<const State*> after = reader.ReadPlainChar(states.back());
    if (!after) return {};
    if (*after == State::Dead()) break;
    if (*after == states.back()) {
      states.resize(TokenVocabulary::kPlainChars + 1, *after);
    } else {
      states.push_back(*after);
    }
  }
  return states;
}

// A state that most characters lead to and stay in, null if there is none: most tokens that can be read from `start`
// can be read from there, too.
const State* FindLoopBehind(const State* start, const StateStore& store, const Reader& reader) {
  constexpr int kMany = 20;  // bytes: most letters
  std::array<int, 256> num_bytes{};
  const auto& byte_class = store.network().byte_class;
  for (int byte = 0x20; byte < 0x7F; ++byte) {
    if (++num_bytes[byte_class[byte]] < kMany) continue;
    const State* after = reader.Read(start, static_cast<uint8_t>(byte));
    if (after == nullptr || after == State::Dead() || after == start) continue;
    if (reader.Read(after, static_cast<uint8_t>(byte)) == after) return after;
  }
  return nullptr;
}

// Finds the mask of `state` and keeps it; `is_base`: it is to be the base of another one.
const TokenMask* FindMask(const TokenVocabulary& vocabulary, const State* state, StateStore* store, int64_t* steps,
                          bool is_base) {
  if (const TokenMask* known = state->mask.load(std::memory_order_acquire)) return known;
  const Reader reader(store, steps);
  static const TokenMask kNone;
  const TokenMask* base = &kNone;
  Difference difference;
  bool done = true;
  const State* loop = nullptr;
  if (const auto plain = FindPlainStates(state, reader); !plain.empty()) {
    base = &vocabulary.plain_tokens(static_cast<int>(plain.size()) - 1);
    if (plain.size() > 1 && plain[1] == state) {
      done = Walk(vocabulary.all_remainders(), state, State::Dead(), reader, &difference);
    } else {
      for (size_t chars = 0; chars < plain.size() && done; ++chars) {
        done = Walk(vocabulary.remainders(static_cast<int>(chars)), plain[chars], State::Dead(), reader, &difference);
      }
    }
  } else if (loop = is_base ? nullptr : FindLoopBehind(state, *store, reader); loop != nullptr) {
    base = FindMask(vocabulary, loop, store, steps, /*is_base=*/true);
    done = base != nullptr && Walk(vocabulary.trie(), state, loop, reader, &difference);
  } else {
    done = Walk(vocabulary.trie(), state, State::Dead(), reader, &difference);
  }
  if (!done) return nullptr;
  const bool other_accepts = loop != nullptr && loop->is_accepting;
  if (state->is_accepting != other_accepts) {
    std::vector<int32_t>& ids = state->is_accepting ? difference.added : difference.removed;
    ids.insert(ids.end(), vocabulary.end_ids().begin(), vocabulary.end_ids().end());
  }
  return store->SetMask(state, Apply(*base, difference, vocabulary.num_words()));
}

}  // namespace

const TokenMask* FindTokenMask(const TokenVocabulary& vocabulary, const State* state, StateStore* store,
                               int64_t* steps) {
  return FindMask(vocabulary, state, store, steps, /*is_base=*/false);
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
