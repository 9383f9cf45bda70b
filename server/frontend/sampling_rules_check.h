#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/sampling_rules.h"
#include "model/tokenizer/tokenizer.h"
#include "server/frontend/generate_request.h"

namespace quire {

// A request's rules for the sampler, with texts where the sampler wants ids.
struct CheckedRules {
  SamplingRules rules;
  std::vector<std::string> bad_words;
  std::vector<std::string> breakers;  // of DRY; none if it is off

  bool any() const;
};

// Checks against the ranges of Sampling in proto/quire/v1/generation.proto. repetition_penalty: the model's default.
// Errors are kInvalidArgument by InvalidField.
absl::StatusOr<CheckedRules> CheckSamplingRules(const RulesRequest& in, int32_t vocab_size,
                                                const std::optional<float>& repetition_penalty);

// The rules with the ids of words and breakers. Takes a tokenizer's time: breakers, a look at the whole vocabulary.
// kInvalidArgument, by InvalidField, for a word of no token or of one that the model does not have.
absl::StatusOr<SamplingRules> ResolveSamplingRules(CheckedRules checked, const Tokenizer& tokenizer,
                                                   int32_t vocab_size);

}  // namespace quire
