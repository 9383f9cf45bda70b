#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/chat/tool_parser.h"
#include "model/constraint/reply_form.h"
#include "nlohmann/json.hpp"
#include "server/frontend/chat_prompt.h"
#include "server/frontend/generate_request.h"

// tool_choice: what a client writes, and what a reply must then be. Pure functions.
namespace quire {

// Sets tool_choice, tool_name and allowed_tools from OpenAI's "auto", "none", "required", {"type": "function",
// "function": {"name": NAME}} or {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools":
// [{"type": "function", "function": {"name": NAME}}, ...]}}. Errors by InvalidField.
absl::Status ReadToolChoice(const nlohmann::ordered_json& value, ChatPrompt* prompt);

// What a reply must be that has to call one of the prompt's tools, whose form was checked: the one named tool_name
// once, if there is that; else any that is allowed, more than one of them with parallel_tool_calls. Written as the
// model's family does, arguments as the tool's schema has them. Errors by InvalidField: no such tool, or a model that
// has no form of calls.
absl::StatusOr<StructuredOutput> RequireToolCall(const ChatPrompt& prompt, ToolSyntax syntax);

// What comes before the text of a reply.
constraint::Reasoning ReasoningBefore(ReasoningSyntax syntax);

}  // namespace quire
