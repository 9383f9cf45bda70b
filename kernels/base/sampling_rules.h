#pragma once

#include <cstdint>
#include <vector>

namespace quire {

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;  // finite
};

// What a request asks of the sampler beyond temperature, min-p, top-k and top-p (SampleRow in kernels/ops.h). Few do:
// the others have no such object. Each field's default switches it off. A value; kernels/README.md has the order and
// the definitions.
struct SamplingRules {
  // Before arg-max: on the logits.
  std::vector<uint32_t> allowed_ids;            // [ceil(V / 32)], bit i % 32 of word i / 32: id i may come. Empty: all
  std::vector<std::vector<int32_t>> bad_words;  // ids, none of them empty
  std::vector<LogitBias> logit_bias;            // each id once
  float repetition_penalty = 1;                 // > 0
  float frequency_penalty = 0, presence_penalty = 0;  // finite
  int32_t repeat_last_n = 0;                          // tokens that these three look at; 0: all
  float dry_multiplier = 0;                           // >= 0
  float dry_base = 1.75f;                             // >= 1
  int32_t dry_allowed_length = 2;                     // >= 1
  int32_t dry_last_n = 0;                             // tokens that it looks at; 0: all
  std::vector<uint32_t> dry_breakers;                 // bits as of allowed_ids, or empty: none
  int32_t no_repeat_ngram_size = 0;                   // >= 0

  // Behind it: on what is drawn from. Not looked at by greedy rows.
  float top_n_sigma = 0;        // >= 0
  float dynatemp_range = 0;     // >= 0
  float dynatemp_exponent = 1;  // > 0
  float typical_p = 1;          // (0, 1]
  float xtc_probability = 0;    // [0, 1]
  float xtc_threshold = 0.1f;   // (0, 1)
  float mirostat_tau = 0;       // bits, >= 0
  float mirostat_eta = 0.1f;    // (0, 1]

  bool penalizes() const { return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0; }
  bool sees_tokens() const {
    return penalizes() || dry_multiplier > 0 || no_repeat_ngram_size > 0 || !bad_words.empty();
  }
  bool keeps_state() const { return mirostat_tau > 0; }
  bool adjusts_logits() const { return sees_tokens() || !allowed_ids.empty() || !logit_bias.empty(); }
  bool shapes_distribution() const {
    return top_n_sigma > 0 || dynatemp_range > 0 || typical_p < 1 || xtc_probability > 0 || mirostat_tau > 0;
  }
};

}  // namespace quire
