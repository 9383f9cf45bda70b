#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/sampling_rules.h"

namespace quire {

// Ends a sequence whose output ends in `min_count` times the same min_pattern_size .. max_pattern_size tokens.
struct RepetitionDetection {
  int32_t max_pattern_size = 0;  // 0: off
  int32_t min_pattern_size = 1;  // >= 1
  int32_t min_count = 2;         // >= 2
};

// When a beam search with enough hypotheses ends; scheduler/beam_search.h has the rules.
enum class EarlyStopping : uint8_t { kNo, kYes, kNever };

// What a client may say about how its tokens are chosen and when they end. A value type; validated by
// server/frontend/validator before it gets here (ranges below).
struct SamplingParams {
  int32_t n = 1;                        // sequences of the request, [1, 64]
  float temperature = 1;                // >= 0, finite; 0 (and below 1e-5) is greedy
  float min_p = 0;                      // [0, 1]; 0 off
  int32_t top_k = 0;                    // >= 0; 0 off
  float top_p = 1;                      // (0, 1]; 1 off
  uint64_t seed = 0;                    // set by the front end if the client gave none
  int32_t max_tokens = 16;              // >= 1; already cut to what fits behind the prompt
  int32_t min_tokens = 0;               // [0, max_tokens]: eos and stop ids are masked and stop strings ignored before
  std::vector<int32_t> stop_token_ids;  // at most 64, each in the vocabulary
  std::vector<std::string> stop_strings;  // at most 16, none empty, each at most 1024 bytes of UTF-8
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;  // the model's eos ids do not end a sequence
  bool skip_special_tokens = true;
  std::optional<int32_t> logprobs;  // best ids per output token, 0: the chosen one only, -1: the whole vocabulary
  std::optional<int32_t>
      prompt_logprobs;  // the same per prompt token; switches prefix-cache reads off for this request
  // Beam search: the n best hypotheses of `beam_width` beams, nothing is drawn. 0: none, else [2, 64], at least n, with
  // temperature 0, without stop strings, and logprobs other than -1.
  int32_t beam_width = 0;
  float length_penalty = 1;  // finite
  EarlyStopping early_stopping = EarlyStopping::kNo;
  bool processed_logprobs = false;  // of what tokens are drawn from, instead of raw ones
  RepetitionDetection repetition_detection = {};
  std::shared_ptr<const SamplingRules> rules;  // what few requests ask of the sampler; null: nothing
  // What may come depends on all that came before: no token is planned while the one before it is in flight. Set if the
  // rules look at tokens or keep state.
  bool needs_output = false;
  // Drafted tokens that a step may check, [0, 64], at most as many as the server allows; not set: these. 0: none. They
  // save time and change nothing else.
  std::optional<int32_t> num_speculative_tokens;
};

}  // namespace quire
