#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/constraint/budget.h"
#include "model/constraint/char_set.h"
#include "model/constraint/expression.h"
#include "model/constraint/network_builder.h"

namespace quire::constraint {

// A nondeterministic automaton over characters, made of a regular expression. Anchors are gone: what they demand is in
// the states.
class CharNfa {
 public:
  enum class Match {
    kWhole,   // the expression must match all of the text
    kSearch,  // it must match somewhere in it
  };
  struct Edge {
    int32_t chars = kEpsilon;  // index of the set
    int32_t target = 0;
  };
  static constexpr int32_t kEpsilon = -1;

  // REQUIRES: no rules in the expression.
  static absl::StatusOr<CharNfa> Create(const Expression& expression, Match match, Budget* budget);

  // The same as a part of a network.
  absl::Status AddTo(int32_t from, Encoding encoding, int32_t to, NetworkBuilder* builder) const;

  int32_t num_states() const { return static_cast<int32_t>(edges_.size()); }
  const std::vector<Edge>& edges(int32_t state) const { return edges_[state]; }  // state 0 is the start
  bool is_accepting(int32_t state) const { return accepting_[state]; }
  const std::vector<CharSet>& char_sets() const { return char_sets_; }

 private:
  std::vector<std::vector<Edge>> edges_;
  std::vector<bool> accepting_;
  std::vector<CharSet> char_sets_;
};

// A deterministic automaton over characters.
class CharDfa {
 public:
  static absl::StatusOr<CharDfa> Create(const CharNfa& nfa, Budget* budget);
  // Of states by hand: `targets` by state, then by atom. Atoms are disjoint.
  CharDfa(std::vector<CharSet> atoms, std::vector<int32_t> targets, std::vector<bool> accepting)
      : atoms_(std::move(atoms)), targets_(std::move(targets)), accepting_(std::move(accepting)) {}

  // What both accept.
  static absl::StatusOr<CharDfa> Intersection(const CharDfa& a, const CharDfa& b, Budget* budget);
  // What it does not accept.
  CharDfa Complement() const;
  bool IsEmpty() const;
  bool Accepts(std::string_view utf8) const;  // valid UTF-8

  absl::Status AddTo(int32_t from, Encoding encoding, int32_t to, NetworkBuilder* builder) const;

 private:
  static constexpr int32_t kNone = -1;

  int32_t num_states() const { return static_cast<int32_t>(accepting_.size()); }
  int32_t Target(int32_t state, size_t atom) const { return targets_[state * atoms_.size() + atom]; }

  std::vector<CharSet> atoms_;
  std::vector<int32_t> targets_;  // state 0 is the start; kNone: nothing more can match
  std::vector<bool> accepting_;
};

}  // namespace quire::constraint
