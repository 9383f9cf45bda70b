#pragma once

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "server/frontend/chat_prompt.h"

// What a conversation must look like before a template sees it, and what is put right. Pure functions.
namespace quire {

// The form of messages, tools, documents and further names. What is no text is refused by name. Errors by InvalidField.
absl::Status CheckChatPrompt(const ChatPrompt& prompt);

// Only the roles of OpenAI's API and those of tools: others could spell special tokens together with the template.
absl::Status CheckRoles(const nlohmann::ordered_json& messages);

// Messages without their members that are null, but for content: clients write out what they have not set. A developer
// is the system to a template that knows none.
nlohmann::ordered_json CleanMessages(const nlohmann::ordered_json& messages, bool knows_developers);

}  // namespace quire
