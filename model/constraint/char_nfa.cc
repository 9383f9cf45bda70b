#include <map>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/char_automaton.h"
#include "model/tokenizer/utf8.h"

namespace quire::constraint {
namespace {

using Kind = Expression::Kind;

// Thompson's construction, anchors as edges.
class AnchoredNfa {
 public:
  struct Edge {
    Kind kind = Kind::kText;  // kText: epsilon; kChars; or an anchor
    int32_t chars = 0;
    int32_t target = 0;
  };

  explicit AnchoredNfa(Budget* budget) : budget_(budget) {}

  absl::StatusOr<int32_t> AddState() {
    QUIRE_RETURN_IF_ERROR(budget_->SpendStates(1));
    edges_.emplace_back();
    return static_cast<int32_t>(edges_.size()) - 1;
  }
  void AddChars(int32_t from, const CharSet& chars, int32_t to) {
    const auto [it, is_new] = indices_.try_emplace(chars, static_cast<int32_t>(char_sets_.size()));
    if (is_new) char_sets_.push_back(chars);
    edges_[from].push_back({Kind::kChars, it->second, to});
  }
  void AddEdge(int32_t from, Kind kind, int32_t to) { edges_[from].push_back({kind, 0, to}); }

  absl::Status Add(int32_t from, const Expression& expression, int32_t to) {
    QUIRE_RETURN_IF_ERROR(budget_->SpendSteps(1));
    switch (expression.kind) {
      case Kind::kText:
        for (size_t offset = 0; offset < expression.text.size();) {
          const char32_t c = utf8::Decode(expression.text, &offset);
          QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
          AddChars(from, CharSet(c, c), next);
          from = next;
        }
        AddEdge(from, Kind::kText, to);
        return absl::OkStatus();
      case Kind::kChars:
        AddChars(from, expression.chars, to);
        return absl::OkStatus();
      case Kind::kConcat:
        for (const Expression& part : expression.parts) {
          QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
          QUIRE_RETURN_IF_ERROR(Add(from, part, next));
          from = next;
        }
        AddEdge(from, Kind::kText, to);
        return absl::OkStatus();
      case Kind::kChoice:
        for (const Expression& part : expression.parts) QUIRE_RETURN_IF_ERROR(Add(from, part, to));
        return absl::OkStatus();
      case Kind::kRepeat:
        return AddRepeat(from, expression, to);
      case Kind::kRule:
        return absl::InternalError("a rule in a regular expression");
      default:
        AddEdge(from, expression.kind, to);
        return absl::OkStatus();
    }
  }

  const std::vector<Edge>& edges(int32_t state) const { return edges_[state]; }
  std::vector<CharSet>& char_sets() { return char_sets_; }

 private:
  absl::Status AddRepeat(int32_t from, const Expression& expression, int32_t to) {
    const bool unlimited = expression.max == Expression::kUnlimited;
    const int64_t copies = unlimited ? expression.min : expression.max;
    for (int64_t i = 0; i < copies; ++i) {
      if (i >= expression.min) AddEdge(from, Kind::kText, to);
      QUIRE_ASSIGN_OR_RETURN(const int32_t next, AddState());
      QUIRE_RETURN_IF_ERROR(Add(from, expression.parts[0], next));
      from = next;
    }
    if (unlimited) {
      QUIRE_ASSIGN_OR_RETURN(const int32_t loop, AddState());
      AddEdge(from, Kind::kText, loop);
      QUIRE_RETURN_IF_ERROR(Add(loop, expression.parts[0], loop));
      from = loop;
    }
    AddEdge(from, Kind::kText, to);
    return absl::OkStatus();
  }

  Budget* budget_;
  std::vector<std::vector<Edge>> edges_;
  std::vector<CharSet> char_sets_;
  absl::flat_hash_map<CharSet, int32_t> indices_;
};

// What anchors have demanded of the rest of the text.
enum class Rest { kAnything, kNothing, kNewline };

struct Place {
  int32_t state;
  bool at_begin;
  Rest rest;
  bool operator<(const Place& other) const {
    return std::tie(state, at_begin, rest) < std::tie(other.state, other.at_begin, other.rest);
  }
};

}  // namespace

absl::StatusOr<CharNfa> CharNfa::Create(const Expression& expression, Match match, Budget* budget) {
  AnchoredNfa anchored(budget);
  QUIRE_ASSIGN_OR_RETURN(const int32_t start, anchored.AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t inner_start, anchored.AddState());
  QUIRE_ASSIGN_OR_RETURN(const int32_t end, anchored.AddState());
  if (match == Match::kSearch) {
    anchored.AddChars(start, CharSet::All(), start);
    anchored.AddChars(end, CharSet::All(), end);
  }
  anchored.AddEdge(start, Kind::kText, inner_start);
  QUIRE_RETURN_IF_ERROR(anchored.Add(inner_start, expression, end));

  CharNfa nfa;
  std::vector<Place> places;
  std::map<Place, int32_t> indices;
  const auto index_of = [&](const Place& place) {
    const auto [it, is_new] = indices.try_emplace(place, static_cast<int32_t>(places.size()));
    if (is_new) {
      places.push_back(place);
      nfa.edges_.emplace_back();
      nfa.accepting_.push_back(place.state == end && place.rest != Rest::kNewline);
    }
    return it->second;
  };
  const int32_t newline = static_cast<int32_t>(anchored.char_sets().size());
  anchored.char_sets().push_back(CharSet('\n', '\n'));
  index_of({start, true, Rest::kAnything});
  for (size_t i = 0; i < places.size(); ++i) {
    QUIRE_RETURN_IF_ERROR(budget->SpendStates(1));
    const Place at = places[i];
    const auto add = [&](int32_t chars, const Place& to) {
      const int32_t target = index_of(to);
      nfa.edges_[i].push_back({chars, target});
    };
    for (const AnchoredNfa::Edge& edge : anchored.edges(at.state)) {
      const Place next = {edge.target, at.at_begin, at.rest};
      switch (edge.kind) {
        case Kind::kChars:
          if (at.rest == Rest::kAnything) add(edge.chars, {edge.target, false, Rest::kAnything});
          if (at.rest == Rest::kNewline && anchored.char_sets()[edge.chars].Contains('\n')) {
            add(newline, {edge.target, false, Rest::kNothing});
          }
          break;
        case Kind::kBegin:
          if (at.at_begin) add(kEpsilon, next);
          break;
        case Kind::kEnd:
          if (at.rest != Rest::kNewline) add(kEpsilon, {edge.target, at.at_begin, Rest::kNothing});
          break;
        case Kind::kEndOrFinalNewline:
          add(kEpsilon, {edge.target, at.at_begin, at.rest == Rest::kAnything ? Rest::kNothing : at.rest});
          if (at.rest == Rest::kAnything) add(kEpsilon, {edge.target, at.at_begin, Rest::kNewline});
          break;
        default:
          add(kEpsilon, next);
      }
    }
  }
  nfa.char_sets_ = std::move(anchored.char_sets());
  return nfa;
}

absl::Status CharNfa::AddTo(int32_t from, Encoding encoding, int32_t to, NetworkBuilder* builder) const {
  std::vector<int32_t> states(num_states());
  for (int32_t& state : states) {
    QUIRE_ASSIGN_OR_RETURN(state, builder->AddState());
  }
  builder->AddEpsilon(from, states[0]);
  for (int32_t s = 0; s < num_states(); ++s) {
    if (accepting_[s]) builder->AddEpsilon(states[s], to);
    for (const Edge& edge : edges_[s]) {
      if (edge.chars == kEpsilon) {
        builder->AddEpsilon(states[s], states[edge.target]);
      } else {
        QUIRE_RETURN_IF_ERROR(builder->AddChars(states[s], char_sets_[edge.chars], encoding, states[edge.target]));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace quire::constraint
