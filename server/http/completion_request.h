#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/frontend/generate_request.h"
#include "server/http/http_message.h"
#include "server/http/json_fields.h"

namespace quire {

// A request to /v1/completions or /v1/chat/completions: what the front end shall do, and how the answer looks.
struct CompletionRequest {
  using Prompt = decltype(GenerateRequest::prompt);

  // The request to the front end of prompt `i`, which is moved out; to be called once for each, in their order. Made
  // one by one, so that what they have in common, of any size until it is checked, is not there a thousand times.
  GenerateRequest Take(size_t i);

  // An error of the front end's, about the field as the client called it.
  absl::Status WithNames(absl::Status status) const;

  GenerateRequest common;       // all but prompt and request_id
  std::vector<Prompt> prompts;  // at least one
  int64_t n = 1;                // sequences of each prompt in the answer
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false, continuous_usage = false;  // of stream_options
  bool echo = false;                                     // the prompt comes before the text
  bool prompt_only = false;                              // max_tokens 0 with echo: nothing but the prompt
  bool return_token_ids = false;                         // those of the prompt, too
  bool tokens_as_ids = false;                            // log-probabilities name a token by its id, "token_id:7"
  bool prompt_logprobs = false;                          // the answer has a field of that name
  std::string request_id;                                // of the header or the body; may be empty
  std::string model;                                     // as asked for; may be empty
  // Fields under the front end's names and those that the client knows them by.
  std::vector<std::pair<std::string, std::string>> field_names;
  std::string ignored_fields;  // of the body: names that mean nothing here, with commas between; may be empty
};

// Reads the body of /v1/completions and the headers that go with it (x-request-id, x-request-timeout-ms, x-tenant).
// Ranges are the front end's business; what Quire cannot do is refused by name. Errors by InvalidField.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(const HttpRequest& request, const Json& body);

// Reads what bodies of both kinds have, and the headers. To be called when the other fields are read: the error is the
// first of `fields`, else of what was read here.
absl::Status ReadSharedFields(const HttpRequest& request, JsonFields& fields, CompletionRequest* out);

}  // namespace quire
