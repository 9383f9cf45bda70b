#include "model/constraint/state_store.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace quire::constraint {
namespace {

using EdgeKind = Network::EdgeKind;

auto Key(const Item& item) { return std::make_tuple(item.state, item.rule, item.origin->index); }
auto Key(const Wait& wait) {
  return std::make_tuple(wait.rule, wait.then.state, wait.then.rule, wait.then.origin->index);
}

template <typename T>
bool Before(const T& a, const T& b) {
  return Key(a) < Key(b);
}
template <typename T>
bool Same(const T& a, const T& b) {
  return Key(a) == Key(b);
}

const State* Sentinel(int64_t index) {
  State* state = new State;
  state->index = index;
  return state;
}

struct Contents {
  bool is_accepting;
  absl::Span<const Item> items;
  absl::Span<const Wait> waits;
};

Contents ContentsOf(const State* state) { return {state->is_accepting, state->items, state->waits}; }

}  // namespace

const State* State::Here() {
  static const State* const state = Sentinel(-1);
  return state;
}
const State* State::Bottom() {
  static const State* const state = Sentinel(-2);
  return state;
}
const State* State::Dead() {
  static const State* const state = Sentinel(-3);
  return state;
}

struct StateStore::Hash {
  using is_transparent = void;
  size_t operator()(const State* state) const { return (*this)(ContentsOf(state)); }
  size_t operator()(const Contents& contents) const {
    size_t hash = contents.is_accepting;
    const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29; };
    const auto mix_item = [&](const Item& item) {
      mix(static_cast<uint64_t>(static_cast<uint32_t>(item.state)) << 32 | static_cast<uint32_t>(item.rule));
      mix(static_cast<uint64_t>(item.origin->index));
    };
    for (const Item& item : contents.items) mix_item(item);
    for (const Wait& wait : contents.waits) mix(static_cast<uint64_t>(wait.rule)), mix_item(wait.then);
    return hash;
  }
};

struct StateStore::Equal {
  using is_transparent = void;
  bool operator()(const State* a, const State* b) const { return (*this)(a, ContentsOf(b)); }
  bool operator()(const Contents& a, const State* b) const { return (*this)(b, a); }
  bool operator()(const State* a, const Contents& b) const {
    return a->is_accepting == b.is_accepting &&
           std::equal(a->items.begin(), a->items.end(), b.items.begin(), b.items.end(), &Same<Item>) &&
           std::equal(a->waits.begin(), a->waits.end(), b.waits.begin(), b.waits.end(), &Same<Wait>);
  }
};

// What one state is made in; kept, so that making one allocates little.
struct StateStore::Scratch {
  explicit Scratch(size_t num_states) : newest(num_states) {}

  struct Newest {
    int64_t round = 0;
    int32_t entry = 0;
  };
  struct Entry {
    Item item;
    int32_t older;  // entry with the same network state; -1 if there is none
  };

  void Begin() {
    ++round;
    entries.clear();
    items.clear();
    waits.clear();
    is_accepting = false;
  }
  void Add(int32_t state, int32_t rule, const State* origin) {
    Newest& last = newest[state];
    const int32_t older = last.round == round ? last.entry : -1;
    for (int32_t i = older; i >= 0; i = entries[i].older) {
      if (entries[i].item.rule == rule && entries[i].item.origin == origin) return;
    }
    last = {round, static_cast<int32_t>(entries.size())};
    entries.push_back({{state, rule, origin}, older});
  }

  std::vector<Newest> newest;  // by network state
  int64_t round = 0;
  std::vector<Entry> entries;  // all items, in order of discovery
  std::vector<Item> items;
  std::vector<Wait> waits;
  bool is_accepting = false;
  absl::flat_hash_set<const State*, Hash, Equal> known;
};

StateStore::StateStore(const Network& network, int64_t max_bytes, int64_t max_steps)
    : network_(network), max_bytes_(max_bytes), max_steps_(max_steps) {
  MutexLock lock(&mutex_);
  scratch_ = std::make_unique<Scratch>(network.states.size());
  scratch_->Begin();
  scratch_->Add(network.rules[network.root].start, network.root, State::Bottom());
  int64_t steps = max_steps_;
  Close(&steps);
  if (steps >= 0) start_ = Intern();
}

StateStore::~StateStore() = default;

const State* StateStore::FindNext(const State* state, int byte_class, int64_t* steps) {
  MutexLock lock(&mutex_);
  if (const State* known = state->next[byte_class].load(std::memory_order_relaxed)) return known;
  if (is_full() || *steps < 0) return nullptr;
  const uint8_t byte = network_.class_bytes[byte_class];
  scratch_->Begin();
  for (const Item& item : state->items) {
    const State* origin = item.origin == State::Here() ? state : item.origin;
    for (const Network::Edge& edge : network_.EdgesOf(item.state)) {
      if (edge.kind == EdgeKind::kBytes && edge.first <= byte && byte <= edge.last) {
        scratch_->Add(edge.target, item.rule, origin);
      }
    }
  }
  *steps -= static_cast<int64_t>(state->items.size()) + 1;
  const State* result = State::Dead();
  if (!scratch_->entries.empty()) {
    Close(steps);
    if (*steps < 0) return nullptr;
    result = Intern();
  }
  state->next[byte_class].store(result, std::memory_order_release);
  return result;
}

// All that follows from the items at hand without reading: epsilon edges, calls (Earley's prediction) and ends
// (completion). A rule that matches the empty text is passed at its call (Aycock and Horspool 2002), so an end in the
// state where its rule began says nothing new. A tail call completes what its caller would have: right recursion does
// not pile up states.
void StateStore::Close(int64_t* steps) {
  Scratch& scratch = *scratch_;
  for (size_t i = 0; i < scratch.entries.size() && *steps >= 0; ++i) {
    const Item item = scratch.entries[i].item;
    const Network::State& state = network_.states[item.state];
    if (state.is_end && item.origin == State::Bottom()) scratch.is_accepting = true;
    if (state.is_end && item.origin != State::Here()) {
      const auto& waits = item.origin->waits;
      auto wait = std::lower_bound(waits.begin(), waits.end(), item.rule,
                                   [](const Wait& w, int32_t rule) { return w.rule < rule; });
      for (; wait != waits.end() && wait->rule == item.rule; ++wait, --*steps) {
        const Item& then = wait->then;
        scratch.Add(then.state, then.rule, then.origin == State::Here() ? item.origin : then.origin);
      }
    }
    if (state.reads_bytes) scratch.items.push_back(item);
    const auto edges = network_.EdgesOf(item.state);
    *steps -= static_cast<int64_t>(edges.size()) + 1;
    for (const Network::Edge& edge : edges) {
      if (edge.kind == EdgeKind::kBytes) break;  // they are the last
      if (edge.kind == EdgeKind::kEpsilon) {
        scratch.Add(edge.target, item.rule, item.origin);
      } else if (network_.states[edge.target].only_ends) {
        scratch.Add(network_.rules[edge.rule].start, item.rule, item.origin);
      } else {
        scratch.waits.push_back({edge.rule, {edge.target, item.rule, item.origin}});
        scratch.Add(network_.rules[edge.rule].start, edge.rule, State::Here());
        if (network_.rules[edge.rule].nullable) scratch.Add(edge.target, item.rule, item.origin);
      }
    }
  }
}

const State* StateStore::Intern() {
  Scratch& scratch = *scratch_;
  std::sort(scratch.items.begin(), scratch.items.end(), &Before<Item>);
  std::sort(scratch.waits.begin(), scratch.waits.end(), &Before<Wait>);
  scratch.waits.erase(std::unique(scratch.waits.begin(), scratch.waits.end(), &Same<Wait>), scratch.waits.end());
  const Contents contents = {scratch.is_accepting, scratch.items, scratch.waits};
  if (const auto it = scratch.known.find(contents); it != scratch.known.end()) return *it;

  State& state = states_.emplace_back();
  state.index = static_cast<int64_t>(states_.size());
  state.is_accepting = contents.is_accepting;
  if (const size_t n = contents.items.size(); n > 0) {
    item_arrays_.push_back(std::make_unique<Item[]>(n));
    std::copy(contents.items.begin(), contents.items.end(), item_arrays_.back().get());
    state.items = {item_arrays_.back().get(), n};
  }
  if (const size_t n = contents.waits.size(); n > 0) {
    wait_arrays_.push_back(std::make_unique<Wait[]>(n));
    std::copy(contents.waits.begin(), contents.waits.end(), wait_arrays_.back().get());
    state.waits = {wait_arrays_.back().get(), n};
  }
  state.next = std::vector<std::atomic<const State*>>(network_.class_bytes.size());
  for (auto& next : state.next) next.store(State::Dead(), std::memory_order_relaxed);
  for (const Item& item : state.items) {
    for (const Network::Edge& edge : network_.EdgesOf(item.state)) {
      if (edge.kind != EdgeKind::kBytes) continue;
      for (int c = network_.byte_class[edge.first]; c <= network_.byte_class[edge.last]; ++c) {
        state.next[static_cast<size_t>(c)].store(nullptr, std::memory_order_relaxed);  // to be found
      }
    }
  }
  bytes_.fetch_add(static_cast<int64_t>(sizeof(State) + 64 + contents.items.size() * sizeof(Item) +
                                        contents.waits.size() * sizeof(Wait) + state.next.size() * sizeof(void*)),
                   std::memory_order_relaxed);
  scratch.known.insert(&state);
  return &state;
}

const TokenMask* StateStore::SetMask(const State* state, TokenMask mask) {
  MutexLock lock(&mutex_);
  if (const TokenMask* known = state->mask.load(std::memory_order_acquire)) return known;
  bytes_.fetch_add(mask.bytes(), std::memory_order_relaxed);
  masks_.push_back(std::move(mask));
  state->mask.store(&masks_.back(), std::memory_order_release);
  return &masks_.back();
}

bool StateStore::Import(std::vector<const State*>* states) {
  // All that is reachable, by ascending index: an origin comes before what stands on it.
  std::vector<const State*> reachable;
  absl::flat_hash_map<const State*, const State*> made;
  const auto visit = [&](const State* state) {
    if (state != nullptr && state->index > 0 && made.try_emplace(state, nullptr).second) reachable.push_back(state);
  };
  for (const State* state : *states) visit(state);
  for (size_t i = 0; i < reachable.size(); ++i) {
    const State* state = reachable[i];
    for (const Item& item : state->items) visit(item.origin);
    for (const Wait& wait : state->waits) visit(wait.then.origin);
  }
  std::sort(reachable.begin(), reachable.end(), [](const State* a, const State* b) { return a->index < b->index; });
  const auto here = [&](Item item) {
    if (item.origin->index > 0) item.origin = made.find(item.origin)->second;
    return item;
  };
  MutexLock lock(&mutex_);
  for (const State* state : reachable) {
    if (is_full()) return false;
    scratch_->Begin();
    for (const Item& item : state->items) scratch_->items.push_back(here(item));
    for (const Wait& wait : state->waits) scratch_->waits.push_back({wait.rule, here(wait.then)});
    scratch_->is_accepting = state->is_accepting;
    made[state] = Intern();
  }
  for (const State*& state : *states) {
    if (state != nullptr && state->index > 0) state = made.find(state)->second;
  }
  return true;
}

}  // namespace quire::constraint
