#include "kernels/logit_rules.h"

#include <algorithm>
#include <cmath>

#include "kernels/vocab_scan.h"

namespace quire {
namespace {

using Tokens = absl::Span<const int32_t>;

constexpr double kHighestPenalty = 1e30;  // leaves a finite logit finite

// The last `n` tokens; all if n is 0.
Tokens Last(Tokens tokens, int32_t n) {
  const size_t skipped = n > 0 && tokens.size() > static_cast<size_t>(n) ? tokens.size() - n : 0;
  return tokens.subspan(skipped);
}

bool EndsWith(Tokens tokens, Tokens end) {
  return tokens.size() >= end.size() && std::equal(end.begin(), end.end(), tokens.end() - end.size());
}

void BanBadWords(const SamplingRules& rules, Tokens output, absl::Span<float> logits) {
  for (const std::vector<int32_t>& word : rules.bad_words) {
    const Tokens before = absl::MakeConstSpan(word).first(word.size() - 1);
    if (EndsWith(output, before)) logits[word.back()] = kMinusInfinity;
  }
}

// Once an id, however often it stands there.
void PenalizeRepetition(float penalty, Tokens tokens, absl::Span<float> logits, std::vector<int32_t>* counts) {
  for (const int32_t id : tokens) {
    if ((*counts)[id]++ > 0) continue;
    logits[id] = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
  }
  for (const int32_t id : tokens) (*counts)[id] = 0;
}

void PenalizeFrequency(const SamplingRules& rules, Tokens output, absl::Span<float> logits,
                       std::vector<int32_t>* counts) {
  for (const int32_t id : output) ++(*counts)[id];
  for (const int32_t id : output) {
    const int32_t count = (*counts)[id];
    if (count == 0) continue;
    logits[id] -= rules.frequency_penalty * static_cast<float>(count);
    logits[id] -= rules.presence_penalty;
    (*counts)[id] = 0;
  }
}

bool IsIn(absl::Span<const uint32_t> bits, int32_t id) {
  return !bits.empty() && (bits[id / 32] >> (id % 32) & 1) != 0;
}

// lengths[i] for i > 0: how many tokens before (and with) the one that is i from the end are the same as those at the
// end, `limit` at most. The Z-function of the tokens read backwards.
void MatchEnd(Tokens tokens, int32_t limit, std::vector<int32_t>* lengths) {
  const auto size = static_cast<int32_t>(tokens.size());
  const auto back = [&](int32_t i) { return tokens[size - 1 - i]; };
  int32_t begin = 0, end = 0;  // of the match that reaches farthest
  for (int32_t i = 1; i < size; ++i) {
    int32_t length = i < end ? std::min(end - i, (*lengths)[i - begin]) : 0;
    while (length < limit && i + length < size && back(length) == back(i + length)) ++length;
    (*lengths)[i] = length;
    if (i + length > end) begin = i, end = i + length;
  }
}

void PenalizeDry(const SamplingRules& rules, Tokens all, absl::Span<float> logits, RuleScratch* scratch) {
  const Tokens tokens = Last(all, rules.dry_last_n);
  const auto size = static_cast<int32_t>(tokens.size());
  const auto breaker =
      std::find_if(tokens.rbegin(), tokens.rend(), [&](int32_t id) { return IsIn(rules.dry_breakers, id); });
  const auto limit = static_cast<int32_t>(breaker - tokens.rbegin());  // tokens behind the last breaker
  if (limit < rules.dry_allowed_length || size <= rules.dry_allowed_length) return;
  // As long as the vocabulary, so that it need not grow with each token.
  if (scratch->lengths.size() < tokens.size()) scratch->lengths.resize(std::max(tokens.size(), logits.size()));
  MatchEnd(tokens, limit, &scratch->lengths);
  std::vector<int32_t>& longest = scratch->counts;
  const auto next = [&](int32_t i) { return tokens[size - i]; };  // what followed there
  for (int32_t i = 1; i < size; ++i) longest[next(i)] = std::max(longest[next(i)], scratch->lengths[i]);
  for (int32_t i = 1; i < size; ++i) {
    const int32_t id = next(i), length = longest[id];
    longest[id] = 0;
    if (length < rules.dry_allowed_length || IsIn(rules.dry_breakers, id)) continue;
    const double penalty = rules.dry_multiplier * std::pow(double{rules.dry_base}, length - rules.dry_allowed_length);
    logits[id] -= static_cast<float>(std::min(penalty, kHighestPenalty));
  }
}

void BanRepeatedNgrams(int32_t n, Tokens tokens, absl::Span<float> logits) {
  const auto size = static_cast<int32_t>(tokens.size());
  if (size < n) return;
  const Tokens end = tokens.last(n - 1);
  for (int32_t i = n - 1; i < size; ++i) {
    if (std::equal(end.rbegin(), end.rend(), tokens.rbegin() + (size - i))) logits[tokens[i]] = kMinusInfinity;
  }
}

}  // namespace

void KeepAllowed(absl::Span<const uint32_t> mask, absl::Span<float> logits) {
  const auto size = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < size; begin += 32) {
    const uint32_t word = mask[begin / 32];
    if (word == ~uint32_t{0}) continue;
    const int64_t end = std::min(begin + 32, size);
    for (int64_t id = begin; id < end; ++id) {
      if ((word >> (id - begin) & 1) == 0) logits[id] = kMinusInfinity;
    }
  }
}

void ApplyLogitRules(const SamplingRules& rules, absl::Span<const int32_t> tokens, int32_t prompt_len,
                     absl::Span<float> logits, RuleScratch* scratch) {
  const Tokens output = tokens.subspan(prompt_len);
  scratch->counts.resize(std::max(scratch->counts.size(), logits.size()), 0);
  if (!rules.allowed_ids.empty()) KeepAllowed(rules.allowed_ids, logits);
  BanBadWords(rules, output, logits);
  for (const LogitBias& bias : rules.logit_bias) logits[bias.token_id] += bias.bias;
  if (rules.repetition_penalty != 1) {
    PenalizeRepetition(rules.repetition_penalty, Last(tokens, rules.repeat_last_n), logits, &scratch->counts);
  }
  if (rules.frequency_penalty != 0 || rules.presence_penalty != 0) {
    PenalizeFrequency(rules, Last(output, rules.repeat_last_n), logits, &scratch->counts);
  }
  if (rules.dry_multiplier > 0) PenalizeDry(rules, tokens, logits, scratch);
  if (rules.no_repeat_ngram_size > 0) BanRepeatedNgrams(rules.no_repeat_ngram_size, tokens, logits);
}

}  // namespace quire
