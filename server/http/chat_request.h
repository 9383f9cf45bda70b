#pragma once

#include "absl/status/statusor.h"
#include "server/frontend/chat_prompt.h"
#include "server/http/completion_request.h"
#include "server/http/json_fields.h"

namespace quire {

// Reads the body of /v1/chat/completions and the headers that go with it. Of the conversation only the form of the
// fields around it is looked at; the rest is the front end's business. Errors by InvalidField.
absl::StatusOr<CompletionRequest> ParseChatRequest(const HttpRequest& request, Json body);

// The conversation alone, as /tokenize takes it too: messages, tools, documents, chat_template and what goes with it.
// Moves it out of *body.
ChatPrompt ReadChatPrompt(JsonFields& fields, Json* body);

}  // namespace quire
