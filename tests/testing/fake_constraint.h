#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/check.h"
#include "model/token_constraint.h"

namespace quire::testing {

// Lets a few ids follow, which depend on all tokens so far: often one only, sometimes the end id beside others or
// alone, sometimes nothing.
class FakeConstraint final : public TokenConstraint {
 public:
  FakeConstraint(int32_t vocab_size, int32_t end_id, uint64_t seed)
      : vocab_size_(vocab_size), end_id_(end_id), state_(Mix(seed, 0)) {
    FindNext();
    if (allowed_.empty()) allowed_.push_back(0);
  }

  std::unique_ptr<TokenConstraint> Clone() const override { return std::make_unique<FakeConstraint>(*this); }
  absl::Status Accept(int32_t token_id) override {
    if (std::find(allowed_.begin(), allowed_.end(), token_id) == allowed_.end()) {
      return absl::InvalidArgumentError("the token is not allowed");
    }
    if (++num_accepted_ == fails_at) return absl::ResourceExhaustedError("too expensive");
    state_ = Mix(state_, static_cast<uint64_t>(token_id));
    allowed_.clear();
    if (token_id != end_id_) FindNext();
    return absl::OkStatus();
  }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t num_allowed() const override { return static_cast<int32_t>(allowed_.size()); }
  int32_t only_token() const override {
    QUIRE_CHECK(allowed_.size() == 1);
    return allowed_[0];
  }
  void FillMask(absl::Span<uint32_t> words) const override {
    QUIRE_CHECK(words.size() == (static_cast<size_t>(vocab_size_) + 31) / 32);
    std::fill(words.begin(), words.end(), 0);
    for (const int32_t id : allowed_) words[id / 32] |= 1u << id % 32;
  }

  int32_t fails_at = -1;  // the call of Accept that fails, from 1

 private:
  // The same in every run, which absl::Hash is not.
  static uint64_t Mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 + b;
    x = (x ^ (x >> 29)) * 0x94D049BB133111EB;
    return x ^ (x >> 32);
  }

  void FindNext() {
    const uint64_t kind = state_ % 16;
    if (kind == 15 && num_accepted_ > 3) return;  // complete, and nothing may follow
    const uint64_t count = kind < 8 ? 1 : 1 + kind % 5;
    for (uint64_t i = 0; i < count; ++i) Allow(static_cast<int32_t>(Mix(state_, i + 1) % vocab_size_));
    if (kind == 3 || kind == 9) Allow(end_id_);
  }
  void Allow(int32_t id) {
    if (std::find(allowed_.begin(), allowed_.end(), id) == allowed_.end()) allowed_.push_back(id);
  }

  int32_t vocab_size_, end_id_;
  uint64_t state_;
  int32_t num_accepted_ = 0;
  std::vector<int32_t> allowed_;
};

}  // namespace quire::testing
