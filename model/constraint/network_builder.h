#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/constraint/budget.h"
#include "model/constraint/char_set.h"
#include "model/constraint/expression.h"
#include "model/constraint/network.h"

namespace quire::constraint {

// How a character is written in the text.
enum class Encoding {
  kUtf8,
  kJson,  // inside a JSON string, the one canonical way: as UTF-8, escaped only where it must be, shortly if that
          // exists
};

// Makes a Network: states and edges by hand or from expressions, characters turned into bytes. Not thread-safe.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(Budget* budget) : budget_(budget) {}

  Budget& budget() { return *budget_; }

  // A rule is declared first and defined once; a rule never defined matches nothing.
  int32_t DeclareRule();
  absl::Status DefineRule(int32_t rule, const Expression& expression, Encoding encoding = Encoding::kUtf8);
  // The same by states of one's own. `end` has no outgoing edges.
  void DefineRule(int32_t rule, int32_t start, int32_t end);

  absl::StatusOr<int32_t> AddState();
  void AddEpsilon(int32_t from, int32_t to) { AddEdge(from, {Network::EdgeKind::kEpsilon, 0, 0, 0, to}); }
  void AddRule(int32_t from, int32_t rule, int32_t to) { AddEdge(from, {Network::EdgeKind::kRule, 0, 0, rule, to}); }
  void AddBytes(int32_t from, uint8_t first, uint8_t last, int32_t to) {
    AddEdge(from, {Network::EdgeKind::kBytes, first, last, 0, to});
  }
  absl::Status AddChars(int32_t from, const CharSet& chars, Encoding encoding, int32_t to);
  absl::Status AddText(int32_t from, std::string_view bytes, int32_t to);
  // REQUIRES: no anchors.
  absl::Status AddExpression(int32_t from, const Expression& expression, Encoding encoding, int32_t to);
  // One of `texts`, as a trie: bytes as they are. Sorts them.
  absl::Status AddTexts(int32_t from, std::vector<std::string> texts, int32_t to);

  // Finish fails with `problem` if the rule matches no text, even if others do.
  void RequireRule(int32_t rule, std::string problem) { required_.push_back({rule, std::move(problem)}); }

  // kInvalidArgument if `root` matches no text.
  absl::StatusOr<std::unique_ptr<const Network>> Finish(int32_t root);

 private:
  struct RuleStates {
    int32_t start = -1, end = -1;  // undefined
  };

  void AddEdge(int32_t from, Network::Edge edge) { edges_.push_back({from, edge}); }
  absl::Status AddRepeat(int32_t from, const Expression& expression, Encoding encoding, int32_t to);
  absl::Status AddSortedTexts(int32_t from, absl::Span<const std::string> texts, size_t depth, int32_t to);
  absl::StatusOr<int32_t> BeyondAsciiRule(const CharSet& chars);
  absl::Status AddEscapes(int32_t from, const CharSet& chars, int32_t to);

  Budget* budget_;
  int32_t num_states_ = 0;
  std::vector<std::pair<int32_t, Network::Edge>> edges_;
  std::vector<RuleStates> rules_;
  std::vector<std::pair<int32_t, std::string>> required_;
  absl::flat_hash_map<CharSet, int32_t> beyond_ascii_;  // rules for the characters of a set from U+0080 on
};

// "Any character, in any spelling", in a JSON string: for strings whose contents are free.
absl::Status DefineFreeJsonChar(int32_t rule, NetworkBuilder* builder);

}  // namespace quire::constraint
