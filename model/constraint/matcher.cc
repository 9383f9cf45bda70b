#include "model/constraint/matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/state_store.h"
#include "model/constraint/token_mask.h"

namespace quire::constraint {
namespace {

absl::Status TooMuch(const char* limit, int64_t value) {
  return absl::ResourceExhaustedError(absl::StrCat("the constraint needs more than ", limit, " = ", value, " here"));
}

}  // namespace

ConstraintMatcher::ConstraintMatcher(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)), store_(constraint_->store()), start_(store_->start()) {}

const State* ConstraintMatcher::state() const {
  for (auto it = history_.rbegin(); it != history_.rend(); ++it) {
    if (*it != nullptr) return *it;
  }
  return start_;
}

bool ConstraintMatcher::IsAccepting() const { return state()->is_accepting; }

// Goes on with another store, in which there is room, from the states that this sequence still needs.
absl::Status ConstraintMatcher::MoveToNewStore() {
  std::shared_ptr<StateStore> store = constraint_->StoreAfter(store_.get());
  std::vector<const State*> states = history_;
  states.push_back(start_);
  if (!store->Import(&states)) return TooMuch("max_cache_bytes", constraint_->limits().max_cache_bytes);
  start_ = states.back();
  states.pop_back();
  history_ = std::move(states);
  store_ = std::move(store);
  return absl::OkStatus();
}

// Runs `find`, which returns null where the store is full or the steps are used up, in this store or a new one.
template <typename Find>
auto ConstraintMatcher::InAStoreWithRoom(Find find) -> absl::StatusOr<decltype(find(nullptr))> {
  for (int attempt = 0;; ++attempt) {
    int64_t steps = constraint_->limits().max_match_steps;
    if (const auto found = find(&steps)) return found;
    if (steps < 0) return TooMuch("max_match_steps", constraint_->limits().max_match_steps);
    if (attempt == 1) return TooMuch("max_cache_bytes", constraint_->limits().max_cache_bytes);
    QUIRE_RETURN_IF_ERROR(MoveToNewStore());
  }
}

// The state after `bytes`; Dead() if they do not fit, and then *fitting of them do.
absl::StatusOr<const State*> ConstraintMatcher::Advance(std::string_view bytes, int64_t* fitting) {
  return InAStoreWithRoom([&](int64_t* steps) {
    const State* at = state();
    *fitting = 0;
    for (const char byte : bytes) {
      at = store_->Next(at, store_->network().byte_class[static_cast<uint8_t>(byte)], steps);
      if (at == nullptr || at == State::Dead()) break;
      ++*fitting;
    }
    return at;
  });
}

absl::Status ConstraintMatcher::AcceptToken(int32_t id) {
  const TokenVocabulary& vocabulary = constraint_->vocabulary();
  if (vocabulary.IsEnd(id)) {
    if (!IsAccepting()) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, " ends a text that is not complete"));
    }
    history_.push_back(nullptr);
    return absl::OkStatus();
  }
  const std::string_view bytes = vocabulary.TokenBytes(id);
  if (bytes.empty()) return absl::InvalidArgumentError(absl::StrCat("token ", id, " stands for no text"));
  absl::Status status = AcceptBytes(bytes);
  if (absl::IsInvalidArgument(status)) {
    return absl::InvalidArgumentError(absl::StrCat("token ", id, " is not allowed by the constraint"));
  }
  return status;
}

absl::Status ConstraintMatcher::AcceptBytes(std::string_view bytes) {
  if (is_finished()) return absl::InvalidArgumentError("the text has ended");
  int64_t fitting = 0;
  QUIRE_ASSIGN_OR_RETURN(const State* next, Advance(bytes, &fitting));
  if (next == State::Dead()) {
    return absl::InvalidArgumentError(absl::StrCat("the constraint does not allow byte ", fitting, " of the text"));
  }
  history_.push_back(next);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ConstraintMatcher::MatchedPrefix(std::string_view bytes) {
  if (is_finished()) return 0;
  int64_t fitting = 0;
  QUIRE_RETURN_IF_ERROR(Advance(bytes, &fitting).status());
  return fitting;
}

absl::StatusOr<const TokenMask*> ConstraintMatcher::NextTokens() {
  return InAStoreWithRoom(
      [&](int64_t* steps) { return FindTokenMask(constraint_->vocabulary(), state(), store_.get(), steps); });
}

absl::Status ConstraintMatcher::FillNextTokenBitmask(absl::Span<uint32_t> words) {
  const TokenVocabulary& vocabulary = constraint_->vocabulary();
  QUIRE_CHECK(static_cast<int64_t>(words.size()) == vocabulary.num_words());
  if (is_finished()) {
    std::fill(words.begin(), words.end(), 0);
    for (const int32_t id : vocabulary.end_ids()) words[id / 32] |= 1u << id % 32;
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const TokenMask* mask, NextTokens());
  WriteMask(*mask, words);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int32_t>> ConstraintMatcher::ForcedToken() {
  if (is_finished()) return std::nullopt;
  QUIRE_ASSIGN_OR_RETURN(const TokenMask* mask, NextTokens());
  if (mask->num_allowed != 1) return std::nullopt;
  return OnlyToken(*mask);
}

absl::StatusOr<std::string> ConstraintMatcher::JumpForwardText(int64_t max_bytes) {
  if (is_finished()) return std::string();
  std::string text;
  const auto find = [&](int64_t* steps) -> const State* {
    const Network& network = store_->network();
    text.clear();
    const State* at = state();
    while (!at->is_accepting && static_cast<int64_t>(text.size()) < max_bytes) {
      int fitting = 0;
      char only = 0;
      const State* after = nullptr;
      for (int byte = 0; byte < 256 && fitting < 2; ++byte) {
        const State* next = store_->Next(at, network.byte_class[byte], steps);
        if (next == nullptr) return nullptr;
        if (next == State::Dead()) continue;
        ++fitting;
        only = static_cast<char>(byte);
        after = next;
      }
      if (fitting != 1) break;
      text.push_back(only);
      at = after;
    }
    return at;
  };
  QUIRE_RETURN_IF_ERROR(InAStoreWithRoom(find).status());
  return text;
}

void ConstraintMatcher::Rollback(int64_t count) {
  QUIRE_CHECK(count >= 0 && count <= num_accepted());
  history_.resize(history_.size() - static_cast<size_t>(count));
}

// An end token keeps the state before it.
void ConstraintMatcher::ForgetHistory() {
  if (history_.size() > 2) history_.erase(history_.begin(), history_.end() - 2);
}

}  // namespace quire::constraint
