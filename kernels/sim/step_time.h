#pragma once

#include <cstdint>

namespace quire {

// How long a step of the sim device takes: linear in what the step does, as measured steps of the real devices nearly
// are. Seconds; all coefficients >= 0. The defaults are SmolLM2-135M on two cores with AVX-512 VNNI.
struct StepTimeModel {
  double seconds_per_step = 1.5e-3;         // reading the weights once
  double seconds_per_prefill_token = 3e-4;  // rows of prompts
  double seconds_per_decode_row = 3e-4;     // sequences that decode one token
  double seconds_per_kv_token = 1e-6;       // context tokens read by attention, over all sequences

  // Counts >= 0. An empty step takes no time.
  double Seconds(int64_t prefill_tokens, int64_t decode_rows, int64_t kv_tokens) const {
    if (prefill_tokens + decode_rows == 0) return 0;
    return seconds_per_step + seconds_per_prefill_token * static_cast<double>(prefill_tokens) +
           seconds_per_decode_row * static_cast<double>(decode_rows) +
           seconds_per_kv_token * static_cast<double>(kv_tokens);
  }
};

}  // namespace quire
