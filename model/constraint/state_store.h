#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/mutex.h"
#include "model/constraint/network.h"
#include "model/constraint/token_vocabulary.h"

namespace quire::constraint {

class State;

// Earley's items, without the dots that need no memory. An item stands in a rule's automaton, and says which rule it
// completes and in which state that one began: the stack, shared between all states above.
struct Item {
  int32_t state = 0;
  int32_t rule = 0;               // what it completes
  const State* origin = nullptr;  // where that began; State::Here(): in the state that holds the item
};
// "Once `rule`, begun here, is complete: go on with `then`."
struct Wait {
  int32_t rule = 0;
  Item then;
};

// One set of Earley's items: a state of the deterministic automaton that is built as it is used, stack included. Equal
// sets are the same object. Immutable but for what is found out later, which is atomic.
class State {
 public:
  static const State* Here();    // in items only
  static const State* Bottom();  // origin of the root rule
  static const State* Dead();    // nothing fits: the state after a wrong byte

  bool is_accepting = false;
  absl::Span<const Item> items;  // those that read bytes
  absl::Span<const Wait> waits;  // ordered by rule
  int64_t index = 0;             // in its store; origins have smaller ones

  // By class of byte; null: not known yet.
  mutable std::vector<std::atomic<const State*>> next;
  mutable std::atomic<const TokenMask*> mask{nullptr};
};

// The states of one network found so far. Shared by matchers, safe from many threads: what is known is read without
// a lock.
class StateStore {
 public:
  StateStore(const Network& network, int64_t max_bytes, int64_t max_steps);
  ~StateStore();

  const Network& network() const { return network_; }
  // Null if finding it took more than max_steps.
  const State* start() const { return start_; }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  bool is_full() const { return bytes() > max_bytes_; }

  // The state after one byte of that class; Dead() if none may follow. Null if the store is full.
  // *steps is lowered by what it cost; once it is negative the answer is null, too.
  const State* Next(const State* state, int byte_class, int64_t* steps) {
    const State* known = state->next[byte_class].load(std::memory_order_acquire);
    return known != nullptr ? known : FindNext(state, byte_class, steps);
  }

  // Keeps a state's mask; if another thread was faster, its mask is returned.
  const TokenMask* SetMask(const State* state, TokenMask mask);

  // The same states here, made anew, with all that is below them. `states` may hold nulls, which stay. False if the
  // store is full; then `states` is unchanged.
  bool Import(std::vector<const State*>* states);

 private:
  struct Scratch;
  struct Hash;
  struct Equal;

  const State* FindNext(const State* state, int byte_class, int64_t* steps);
  void Close(int64_t* steps) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const State* Intern() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Network& network_;
  const int64_t max_bytes_, max_steps_;
  std::atomic<int64_t> bytes_{0};
  Mutex mutex_;
  std::unique_ptr<Scratch> scratch_ ABSL_GUARDED_BY(mutex_);
  std::deque<State> states_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Item[]>> item_arrays_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::unique_ptr<Wait[]>> wait_arrays_ ABSL_GUARDED_BY(mutex_);
  std::deque<TokenMask> masks_ ABSL_GUARDED_BY(mutex_);
  const State* start_ = nullptr;
};

}  // namespace quire::constraint
