#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/frontend/generate_request.h"
#include "server/http/http_message.h"
#include "server/http/json_fields.h"

// The fields and headers that /v1/completions and /v1/chat/completions share. Each function sets the part of *out that
// its fields say and leaves the rest alone; ranges are the front end's business. A value of a wrong type, and what
// Quire cannot do, is an error of `fields`, naming the field. Any thread.
namespace quire {

// How tokens are chosen: temperature, top_p, top_k (-1: off), min_p, seed, n, best_of, beam search, penalties, biases,
// further samplers, and what the text must be.
void ReadSamplingFields(JsonFields& fields, GenerateRequest* out);

// When a sequence ends, but for the most tokens, whose names and defaults differ: min_tokens, stop, stop_token_ids,
// include_stop_str_in_output, ignore_eos, repetition_detection.
void ReadStoppingFields(JsonFields& fields, GenerateRequest* out);

// How a request is served: skip_special_tokens, add_special_tokens (unset: as *out has it), cache_salt, priority,
// truncate_prompt_tokens, truncation_side, logprobs_mode.
void ReadServingFields(JsonFields& fields, GenerateRequest* out);

// The headers x-request-id (into *request_id, whatever the body says), x-tenant and x-request-timeout-ms (1 ms to a
// week from now on). kInvalidArgument, by InvalidField, for a timeout that is none.
absl::Status ReadRequestHeaders(const HttpRequest& request, std::string* request_id, GenerateRequest* out);

// Refuses a field that is there, unless its value is an empty string, list or object.
void RefuseUnlessEmpty(JsonFields& fields, const char* name);

}  // namespace quire
