#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace quire {

// What RopeTable needs: how fast each pair of dimensions turns, in radians a position, and what multiplies cosine and
// sine.
struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float attention_factor = 1;
};

// A pure function of its arguments; the formulas are those of Hugging Face's modeling_rope_utils.py, computed in
// double. REQUIRES: a RopeConfig that LoadModelConfig would accept. `max_position_embeddings` is the model's;
// `sequence_length` matters for dynamic (the longest sequence so far) and longrope (beyond the original length the
// long factors hold) only.
RopeFrequencies ComputeRope(const RopeConfig& rope, int32_t max_position_embeddings, int64_t sequence_length);

}  // namespace quire
