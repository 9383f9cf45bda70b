#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/sampling_rules.h"

// What SamplingRules do to one row of logits before anything is chosen: masks, bias, penalties, DRY, n-grams. No work
// over the whole vocabulary but for masks, and one pass or two over the tokens. Thread-safe.
namespace quire {

// Working memory of one thread; grows and is then reused.
struct RuleScratch {
  std::vector<int32_t> counts;   // [V], all 0 between uses
  std::vector<int32_t> lengths;  // as many as tokens
};

// Sets the logits of ids whose bits are 0 to -inf. mask: [ceil(V / 32)], bit i % 32 of word i / 32 is that of id i.
void KeepAllowed(absl::Span<const uint32_t> mask, absl::Span<float> logits);

// Applies `rules` in the order of kernels/README.md. tokens: the sequence so far, `prompt_len` of them its prompt, each
// in [0, V). REQUIRES: all ids and masks of the rules are of a vocabulary of logits.size(). No logit is NaN or +inf.
void ApplyLogitRules(const SamplingRules& rules, absl::Span<const int32_t> tokens, int32_t prompt_len,
                     absl::Span<float> logits, RuleScratch* scratch);

}  // namespace quire
