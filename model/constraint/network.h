#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace quire::constraint {

// A grammar as a recursive transition network over bytes: each rule is a nondeterministic automaton, and an edge may
// stand for a whole rule. From every state its rule's end can be reached, so what can be read is a viable prefix.
struct Network {
  enum class EdgeKind : uint8_t { kEpsilon, kRule, kBytes };
  struct Edge {
    EdgeKind kind = EdgeKind::kEpsilon;
    uint8_t first = 0, last = 0;  // kBytes: both included
    int32_t rule = 0;             // kRule
    int32_t target = 0;
  };
  struct State {
    int32_t first_edge = 0;
    bool is_end = false;     // of its rule; then without edges
    bool only_ends = false;  // the end, or nothing but epsilon edges to it: a call before it is a tail call
    bool reads_bytes = false;
  };
  struct Rule {
    int32_t start = 0;
    bool nullable = false;
  };

  std::vector<State> states;  // and one more behind the last, for its edges' end
  std::vector<Edge> edges;
  std::vector<Rule> rules;
  int32_t root = 0;

  // Bytes that no edge tells apart have the same class.
  std::array<uint8_t, 256> byte_class{};
  std::vector<uint8_t> class_bytes;  // one byte of each class

  absl::Span<const Edge> EdgesOf(int32_t state) const {
    return absl::MakeConstSpan(edges).subspan(states[state].first_edge,
                                              states[state + 1].first_edge - states[state].first_edge);
  }
};

}  // namespace quire::constraint
