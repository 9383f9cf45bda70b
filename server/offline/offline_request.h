#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/frontend/generate_request.h"

namespace quire {

// One line of --requests: what to generate, and the id that the answer carries.
struct OfflineRequest {
  // As given, a string or an integer; the number of the line if there is none or it could not be read.
  nlohmann::json id;
  // kInvalidArgument naming the field and what is wrong with it.
  absl::StatusOr<GenerateRequest> request;
};

// Reads a JSON object with the names of quire.v1.GenerateRequest and its parts, all on one level: prompt (text) or
// prompt_ids, or a conversation as OpenAI's API has it: messages, tools, documents, chat_template_kwargs,
// add_generation_prompt, continue_final_message; model, add_special_tokens; temperature, min_p, top_k, top_p, seed, n,
// best_of, beam_width, length_penalty, early_stopping (false, true or "never"); repetition_penalty, frequency_penalty,
// presence_penalty, repeat_last_n, logit_bias ({id: bias}), allowed_token_ids, bad_words, no_repeat_ngram_size,
// dry_{multiplier, base, allowed_length, last_n, sequence_breakers}, top_n_sigma, dynatemp_{range, exponent},
// typical_p, xtc_{probability, threshold}, mirostat (true or false), mirostat_{tau, eta}; repetition_detection
// ({max_pattern_size, min_pattern_size, min_count}), truncate_prompt_tokens, truncation_side ("left", "right"),
// logprobs_mode ("raw_logprobs", "processed_logprobs"); max_tokens, min_tokens, stop (one or many), stop_token_ids,
// include_stop_str_in_output, ignore_eos; logprobs, prompt_logprobs, skip_special_tokens; one of json_schema (the
// schema or its text), json_object (true), regex, grammar, choices, and compact_json; tenant, cache_salt,
// cache_no_read, cache_no_write, cache_retention ([{begin, end, keep: {priority, ttl_seconds}}]),
// cache_decode_retention ({priority, ttl_seconds}), cache_breakpoints ([{position, ttl_seconds}]), priority,
// num_speculative_tokens. null means unset. A field of another name is an error. Ranges are the validator's business.
OfflineRequest ParseOfflineRequest(const std::string& line, int64_t line_number);

}  // namespace quire
