#include <algorithm>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/char_automaton.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

// The coarsest partition of all characters such that each set is a union of parts.
std::vector<CharSet> Atoms(const std::vector<CharSet>& sets) {
  std::vector<char32_t> cuts = {0};
  for (const CharSet& set : sets) {
    for (const CharSet::Range& range : set.ranges()) {
      cuts.push_back(range.first);
      cuts.push_back(range.last + 1);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::map<std::vector<bool>, std::vector<CharSet::Range>> parts;
  for (size_t i = 0; i < cuts.size() && cuts[i] <= 0x10FFFF; ++i) {
    std::vector<bool> members;
    for (const CharSet& set : sets) members.push_back(set.Contains(cuts[i]));
    parts[members].push_back({cuts[i], (i + 1 < cuts.size() ? cuts[i + 1] : 0x110000) - 1});
  }
  std::vector<CharSet> atoms;
  for (auto& [members, ranges] : parts) {
    if (CharSet atom(std::move(ranges)); !atom.empty()) atoms.push_back(std::move(atom));
  }
  return atoms;
}

void CloseOverEpsilon(const CharNfa& nfa, std::vector<int32_t>* states) {
  std::vector<bool> seen(nfa.num_states());
  for (const int32_t state : *states) seen[state] = true;
  for (size_t i = 0; i < states->size(); ++i) {
    for (const CharNfa::Edge& edge : nfa.edges((*states)[i])) {
      if (edge.chars != CharNfa::kEpsilon || seen[edge.target]) continue;
      seen[edge.target] = true;
      states->push_back(edge.target);
    }
  }
  std::sort(states->begin(), states->end());
}

}  // namespace

absl::StatusOr<CharDfa> CharDfa::Create(const CharNfa& nfa, Budget* budget) {
  int64_t num_ranges = 1;
  for (const CharSet& set : nfa.char_sets()) num_ranges += static_cast<int64_t>(set.ranges().size());
  QUIRE_RETURN_IF_ERROR(budget->SpendSteps(num_ranges * static_cast<int64_t>(nfa.char_sets().size())));
  CharDfa dfa(Atoms(nfa.char_sets()), {}, {});
  std::vector<std::vector<bool>> has_atom;  // by set
  for (const CharSet& set : nfa.char_sets()) {
    auto& atoms = has_atom.emplace_back();
    for (const CharSet& atom : dfa.atoms_) atoms.push_back(set.Contains(atom.ranges()[0].first));
  }

  std::vector<std::vector<int32_t>> subsets;
  absl::flat_hash_map<std::vector<int32_t>, int32_t> indices;
  const auto index_of = [&](std::vector<int32_t> states) {
    CloseOverEpsilon(nfa, &states);
    const auto [it, is_new] = indices.try_emplace(states, static_cast<int32_t>(subsets.size()));
    if (is_new) {
      dfa.accepting_.push_back(
          std::any_of(states.begin(), states.end(), [&](int32_t state) { return nfa.is_accepting(state); }));
      subsets.push_back(std::move(states));
    }
    return it->second;
  };
  index_of({0});
  for (size_t i = 0; i < subsets.size(); ++i) {
    const std::vector<int32_t> states = subsets[i];
    QUIRE_RETURN_IF_ERROR(budget->SpendStates(1));
    for (size_t atom = 0; atom < dfa.atoms_.size(); ++atom) {
      std::vector<int32_t> after;
      for (const int32_t state : states) {
        for (const CharNfa::Edge& edge : nfa.edges(state)) {
          if (edge.chars != CharNfa::kEpsilon && has_atom[edge.chars][atom]) after.push_back(edge.target);
        }
      }
      // A step is some 20 ns; here each element costs several, and so does closing over epsilon.
      QUIRE_RETURN_IF_ERROR(budget->SpendSteps(8 * static_cast<int64_t>(states.size() + 1) + nfa.num_states() / 16));
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      dfa.targets_.push_back(after.empty() ? kNone : index_of(std::move(after)));
    }
  }
  return dfa;
}

absl::StatusOr<CharDfa> CharDfa::Intersection(const CharDfa& a, const CharDfa& b, Budget* budget) {
  CharDfa both({}, {}, {});
  std::vector<std::pair<size_t, size_t>> origins;  // of the atoms
  for (size_t i = 0; i < a.atoms_.size(); ++i) {
    for (size_t j = 0; j < b.atoms_.size(); ++j) {
      QUIRE_RETURN_IF_ERROR(
          budget->SpendSteps(static_cast<int64_t>(a.atoms_[i].ranges().size() + b.atoms_[j].ranges().size())));
      CharSet common = a.atoms_[i].Intersection(b.atoms_[j]);
      if (common.empty()) continue;
      both.atoms_.push_back(std::move(common));
      origins.push_back({i, j});
    }
  }
  std::vector<std::pair<int32_t, int32_t>> states;
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> indices;
  const auto index_of = [&](std::pair<int32_t, int32_t> pair) {
    const auto [it, is_new] = indices.try_emplace(pair, static_cast<int32_t>(states.size()));
    if (is_new) {
      states.push_back(pair);
      both.accepting_.push_back(a.accepting_[pair.first] && b.accepting_[pair.second]);
    }
    return it->second;
  };
  index_of({0, 0});
  for (size_t s = 0; s < states.size(); ++s) {
    QUIRE_RETURN_IF_ERROR(budget->SpendStates(1));
    QUIRE_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(origins.size())));
    const auto [in_a, in_b] = states[s];
    for (const auto& [i, j] : origins) {
      const int32_t after_a = a.Target(in_a, i), after_b = b.Target(in_b, j);
      both.targets_.push_back(after_a == kNone || after_b == kNone ? kNone : index_of({after_a, after_b}));
    }
  }
  return both;
}

CharDfa CharDfa::Complement() const {
  CharDfa result = *this;
  CharSet all;
  for (const CharSet& atom : atoms_) all = all.Union(atom);
  const CharSet others = all.Complement();
  const int32_t dead = num_states();
  result.targets_.clear();
  for (int32_t s = 0; s <= dead; ++s) {
    for (size_t atom = 0; atom < atoms_.size(); ++atom) {
      const int32_t target = s == dead ? kNone : Target(s, atom);
      result.targets_.push_back(target == kNone ? dead : target);
    }
    if (!others.empty()) result.targets_.push_back(dead);
  }
  if (!others.empty()) result.atoms_.push_back(others);
  result.accepting_.push_back(false);
  result.accepting_.flip();
  return result;
}

bool CharDfa::IsEmpty() const {
  std::vector<bool> seen(num_states());
  std::vector<int32_t> queue = {0};
  seen[0] = true;
  while (!queue.empty()) {
    const int32_t state = queue.back();
    queue.pop_back();
    if (accepting_[state]) return false;
    for (size_t atom = 0; atom < atoms_.size(); ++atom) {
      const int32_t target = Target(state, atom);
      if (target == kNone || seen[target]) continue;
      seen[target] = true;
      queue.push_back(target);
    }
  }
  return true;
}

bool CharDfa::Accepts(std::string_view text) const {
  int32_t state = 0;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = utf8::Decode(text, &offset);
    int32_t next = kNone;
    for (size_t atom = 0; atom < atoms_.size() && next == kNone; ++atom) {
      if (atoms_[atom].Contains(c)) next = Target(state, atom);
    }
    if (next == kNone) return false;
    state = next;
  }
  return accepting_[state];
}

absl::Status CharDfa::AddTo(int32_t from, Encoding encoding, int32_t to, NetworkBuilder* builder) const {
  std::vector<int32_t> states(num_states());
  for (int32_t& state : states) {
    QUIRE_ASSIGN_OR_RETURN(state, builder->AddState());
  }
  builder->AddEpsilon(from, states[0]);
  for (int32_t s = 0; s < num_states(); ++s) {
    if (accepting_[s]) builder->AddEpsilon(states[s], to);
    std::map<int32_t, std::vector<CharSet::Range>> by_target;
    for (size_t atom = 0; atom < atoms_.size(); ++atom) {
      const int32_t target = Target(s, atom);
      if (target == kNone) continue;
      const auto& ranges = atoms_[atom].ranges();
      QUIRE_RETURN_IF_ERROR(builder->budget().SpendSteps(static_cast<int64_t>(ranges.size())));
      by_target[target].insert(by_target[target].end(), ranges.begin(), ranges.end());
    }
    for (auto& [target, ranges] : by_target) {
      QUIRE_RETURN_IF_ERROR(builder->AddChars(states[s], CharSet(std::move(ranges)), encoding, states[target]));
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::constraint
