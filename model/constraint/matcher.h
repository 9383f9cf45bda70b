#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/constraint/constraint.h"

namespace quire::constraint {

class State;
struct TokenMask;

// Where one sequence stands in its constraint. Copies are forks: they go on independently. One thread at a time;
// matchers of one constraint may be on different threads.
//
// Beside what each method says: kResourceExhausted naming the limit where one step is too expensive
// (ConstraintLimits::max_match_steps, or a single position that does not fit max_cache_bytes). Nothing has changed
// then.
class ConstraintMatcher {
 public:
  explicit ConstraintMatcher(std::shared_ptr<const Constraint> constraint);

  // Takes a sampled token. An end token only where the text is complete, nothing after it. kInvalidArgument for one
  // that is not allowed: the matcher stays where it was.
  absl::Status AcceptToken(int32_t id);
  // The same for text that comes from elsewhere, all of it or nothing. One position for Rollback, as a token is.
  absl::Status AcceptBytes(std::string_view bytes);
  // How many of `bytes` could follow here: bytes.size() if they are a viable prefix. Changes nothing.
  absl::StatusOr<int64_t> MatchedPrefix(std::string_view bytes);

  // Sets bit i % 32 of words[i / 32] where token i may come next, clears all others. Of exactly
  // TokenVocabulary::num_words() words. After an end token: the end tokens.
  absl::Status FillNextTokenBitmask(absl::Span<uint32_t> words);
  // The one token that may come next, if there is only one: it needs no sampling.
  absl::StatusOr<std::optional<int32_t>> ForcedToken();
  // The tokens that may come next, as the bit mask has them; lives as long as this matcher or a copy. REQUIRES:
  // !is_finished().
  absl::StatusOr<const TokenMask*> NextTokens();
  // The bytes that must come next, whatever the tokens: up to where there is a choice or the text may end, at most
  // `max_bytes`. Changes nothing.
  absl::StatusOr<std::string> JumpForwardText(int64_t max_bytes = 1024);

  // The text so far is complete.
  bool IsAccepting() const;
  // An end token was taken.
  bool is_finished() const { return !history_.empty() && history_.back() == nullptr; }

  // Takes back the last `count` calls of Accept. REQUIRES: count <= num_accepted().
  void Rollback(int64_t count);
  int64_t num_accepted() const { return static_cast<int64_t>(history_.size()); }
  // What was taken so far stays, and needs no memory any more; num_accepted() is 1 or 2 afterwards, or 0 as it was.
  void ForgetHistory();

 private:
  const State* state() const;
  absl::StatusOr<const State*> Advance(std::string_view bytes, int64_t* fitting);
  template <typename Find>
  auto InAStoreWithRoom(Find find) -> absl::StatusOr<decltype(find(nullptr))>;
  absl::Status MoveToNewStore();

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<StateStore> store_;  // shared: with the constraint until the store is full, and other matchers
  const State* start_ = nullptr;       // all states live in store_
  std::vector<const State*> history_;  // after each Accept; null for an end token
};

}  // namespace quire::constraint
