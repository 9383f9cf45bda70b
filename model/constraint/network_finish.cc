// The last steps of NetworkBuilder: edges in order of states, parts that lead nowhere removed, byte classes.
#include <algorithm>
#include <bitset>
#include <memory>
#include <numeric>
#include <tuple>

#include "kernels/base/status_macros.h"
#include "model/constraint/network_builder.h"

namespace quire::constraint {
namespace {

using Edge = Network::Edge;
using EdgeKind = Network::EdgeKind;

// The states from which their rule's end is reached backwards from all ends. A call edge counts once its target and
// the start of the called rule do.
class Propagation {
 public:
  // accepts: whether an edge can be passed, calls aside.
  template <typename Accepts>
  Propagation(const Network& network, absl::Span<const std::pair<int32_t, int32_t>> rules, Accepts accepts)
      : reaches_(network.states.size() - 1), callers_(rules.size()), rules_(rules) {
    const int32_t num_states = static_cast<int32_t>(reaches_.size());
    std::vector<int32_t> count(num_states + 1);
    for (const Edge& edge : network.edges) ++count[edge.target];
    std::exclusive_scan(count.begin(), count.end(), count.begin(), 0);
    std::vector<std::pair<int32_t, const Edge*>> into(network.edges.size());
    std::vector<int32_t> fill(count.begin(), count.end() - 1);
    rules_of_start_.resize(num_states);
    for (int32_t s = 0; s < num_states; ++s) {
      for (const Edge& edge : network.EdgesOf(s)) into[fill[edge.target]++] = {s, &edge};
    }
    for (size_t r = 0; r < rules.size(); ++r) {
      if (rules[r].first < 0) continue;
      rules_of_start_[rules[r].first].push_back(static_cast<int32_t>(r));
      Reach(rules[r].second);
    }
    while (!queue_.empty()) {
      const int32_t state = queue_.back();
      queue_.pop_back();
      for (const int32_t rule : rules_of_start_[state]) {
        for (const int32_t caller : callers_[rule]) Reach(caller);
        callers_[rule].clear();
      }
      for (int32_t i = count[state]; i < count[state + 1]; ++i) {
        const auto& [from, edge] = into[i];
        if (edge->kind == EdgeKind::kRule) {
          if (RuleReaches(edge->rule)) {
            Reach(from);
          } else {
            callers_[edge->rule].push_back(from);
          }
        } else if (accepts(*edge)) {
          Reach(from);
        }
      }
    }
  }

  bool Reaches(int32_t state) const { return reaches_[state]; }
  bool RuleReaches(int32_t rule) const { return rules_[rule].first >= 0 && reaches_[rules_[rule].first]; }

 private:
  void Reach(int32_t state) {
    if (reaches_[state]) return;
    reaches_[state] = true;
    queue_.push_back(state);
  }

  std::vector<bool> reaches_;
  std::vector<std::vector<int32_t>> callers_;  // states that wait for the rule, their targets reach the end
  std::vector<std::vector<int32_t>> rules_of_start_;
  absl::Span<const std::pair<int32_t, int32_t>> rules_;
  std::vector<int32_t> queue_;
};

void Sort(std::vector<std::pair<int32_t, Edge>>* edges, Network* network) {
  const int32_t num_states = static_cast<int32_t>(network->states.size()) - 1;
  std::vector<int32_t> position(num_states + 1);
  for (const auto& [from, edge] : *edges) ++position[from];
  std::exclusive_scan(position.begin(), position.end(), position.begin(), 0);
  for (int32_t s = 0; s <= num_states; ++s) network->states[s].first_edge = position[s];
  network->edges.resize(edges->size());
  for (const auto& [from, edge] : *edges) network->edges[position[from]++] = edge;
}

// A state with nothing but one epsilon edge is the same as that edge's target.
std::vector<int32_t> Aliases(const Network& network) {
  const int32_t num_states = static_cast<int32_t>(network.states.size()) - 1;
  std::vector<int32_t> alias(num_states);
  std::iota(alias.begin(), alias.end(), 0);
  std::vector<int32_t> path;
  std::vector<bool> done(num_states), on_path(num_states);
  for (int32_t s = 0; s < num_states; ++s) {
    int32_t at = s;
    while (!done[at] && !on_path[at]) {
      const auto edges = network.EdgesOf(at);
      on_path[at] = true;
      path.push_back(at);
      if (edges.size() != 1 || edges[0].kind != EdgeKind::kEpsilon) break;
      at = edges[0].target;
    }
    const int32_t target = done[at] ? alias[at] : at;
    for (const int32_t state : path) {
      alias[state] = target;
      done[state] = true;
      on_path[state] = false;
    }
    path.clear();
  }
  return alias;
}

void FindByteClasses(Network* network) {
  std::bitset<257> begins;
  begins[0] = true;
  for (const Edge& edge : network->edges) {
    if (edge.kind != EdgeKind::kBytes) continue;
    begins[edge.first] = true;
    begins[edge.last + 1] = true;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (begins[byte]) network->class_bytes.push_back(static_cast<uint8_t>(byte));
    network->byte_class[byte] = static_cast<uint8_t>(network->class_bytes.size() - 1);
  }
}

// only_ends, backwards from the ends through states that have epsilon edges only.
void FindOnlyEnds(Network* network) {
  const int32_t num_states = static_cast<int32_t>(network->states.size()) - 1;
  bool changed = true;
  for (int round = 0; changed && round < 4; ++round) {  // longer chains are no loss but of time
    changed = false;
    for (int32_t s = num_states - 1; s >= 0; --s) {
      Network::State& state = network->states[s];
      const auto edges = network->EdgesOf(s);
      if (state.only_ends) continue;
      state.only_ends = state.is_end || (!edges.empty() && std::all_of(edges.begin(), edges.end(), [&](const Edge& e) {
                          return e.kind == EdgeKind::kEpsilon && network->states[e.target].only_ends;
                        }));
      changed |= state.only_ends;
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Network>> NetworkBuilder::Finish(int32_t root) {
  QUIRE_RETURN_IF_ERROR(budget_->SpendSteps(static_cast<int64_t>(edges_.size())));
  auto network = std::make_unique<Network>();
  network->states.resize(num_states_ + 1);
  network->root = root;
  Sort(&edges_, network.get());

  std::vector<std::pair<int32_t, int32_t>> rules;
  for (const RuleStates& rule : rules_) rules.push_back({rule.start, rule.end});
  const Propagation live(*network, rules, [](const Edge&) { return true; });
  for (const auto& [rule, problem] : required_) {
    if (!live.RuleReaches(rule)) return absl::InvalidArgumentError(problem);
  }
  if (!live.RuleReaches(root)) return absl::InvalidArgumentError("the constraint matches no text");
  const auto is_dead = [&](const std::pair<int32_t, Edge>& item) {
    return !live.Reaches(item.first) || !live.Reaches(item.second.target) ||
           (item.second.kind == EdgeKind::kRule && !live.RuleReaches(item.second.rule));
  };
  edges_.erase(std::remove_if(edges_.begin(), edges_.end(), is_dead), edges_.end());
  Sort(&edges_, network.get());
  const std::vector<int32_t> alias = Aliases(*network);
  for (auto& [from, edge] : edges_) edge.target = alias[edge.target];
  for (auto& [start, end] : rules) {
    if (start >= 0) start = alias[start];
  }
  std::sort(edges_.begin(), edges_.end(), [](const auto& a, const auto& b) {
    const auto key = [](const auto& item) {
      const Edge& e = item.second;
      return std::make_tuple(item.first, e.kind, e.first, e.last, e.rule, e.target);
    };
    return key(a) < key(b);
  });
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.kind == b.second.kind && a.second.first == b.second.first &&
           a.second.last == b.second.last && a.second.rule == b.second.rule && a.second.target == b.second.target;
  };
  edges_.erase(std::unique(edges_.begin(), edges_.end(), same), edges_.end());
  Sort(&edges_, network.get());

  for (const auto& [from, edge] : edges_) network->states[from].reads_bytes |= edge.kind == EdgeKind::kBytes;
  for (const auto& [start, end] : rules) {
    if (end >= 0) network->states[end].is_end = true;
  }
  const Propagation nullable(*network, rules, [](const Edge& edge) { return edge.kind == EdgeKind::kEpsilon; });
  for (size_t r = 0; r < rules.size(); ++r) {
    network->rules.push_back({std::max(rules[r].first, 0), nullable.RuleReaches(static_cast<int32_t>(r))});
  }
  FindOnlyEnds(network.get());
  FindByteClasses(network.get());
  edges_.clear();
  return network;
}

}  // namespace quire::constraint
