#pragma once

#include "server/frontend/generate_request.h"
#include "server/http/json_fields.h"

namespace quire {

// Reads what /v1/completions and /v1/chat/completions have for structured output: OpenAI's `response_format` (type
// text, json_object, json_schema) and vLLM's `structured_outputs` (json, json_object, regex, choice, grammar,
// disable_any_whitespace). More than one, and kinds that are not built, are errors of `fields`. The schema's keys keep
// their order: it is that of the output.
void ReadStructuredOutput(JsonFields& fields, StructuredOutput* out);

}  // namespace quire
