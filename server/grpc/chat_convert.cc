#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/chat_prompt.h"
#include "server/frontend/errors.h"
#include "server/frontend/json_text.h"
#include "server/grpc/convert.h"

// Conversations as OpenAI's API has them, of messages.
namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Null for an empty text.
absl::Status ReadJson(const std::string& field, const std::string& text, Json* out) {
  if (text.empty()) return absl::OkStatus();
  absl::StatusOr<Json> value = ParseJsonText(text);
  if (!value.ok()) return InvalidField(field, std::string(value.status().message()));
  *out = *std::move(value);
  return absl::OkStatus();
}

Json FromProto(v1::ChatMessage& message) {
  Json out = Json::object();
  out["role"] = message.role();
  out["content"] = message.has_content() ? Json(std::move(*message.mutable_content())) : Json(nullptr);
  if (!message.reasoning().empty()) out["reasoning_content"] = message.reasoning();
  for (const v1::ToolCall& call : message.tool_calls()) {
    Json function = Json::object();
    function["name"] = call.name();
    function["arguments"] = call.arguments_json();
    Json entry = Json::object();
    entry["id"] = call.id();
    entry["type"] = "function";
    entry["function"] = std::move(function);
    out["tool_calls"].push_back(std::move(entry));
  }
  if (!message.tool_call_id().empty()) out["tool_call_id"] = message.tool_call_id();
  if (!message.name().empty()) out["name"] = message.name();
  return out;
}

absl::StatusOr<Json> FromProto(const std::string& field, const v1::Tool& tool) {
  Json function = Json::object();
  function["name"] = tool.name();
  if (!tool.description().empty()) function["description"] = tool.description();
  Json parameters;
  QUIRE_RETURN_IF_ERROR(ReadJson(absl::StrCat(field, ".parameters_json"), tool.parameters_json(), &parameters));
  if (!parameters.is_null()) function["parameters"] = std::move(parameters);
  Json out = Json::object();
  out["type"] = "function";
  out["function"] = std::move(function);
  return out;
}

absl::Status ReadToolChoice(const v1::ChatRequest& request, ChatPrompt* prompt) {
  switch (request.tool_choice()) {
    case v1::ChatRequest::TOOL_CHOICE_UNSPECIFIED:
    case v1::ChatRequest::TOOL_CHOICE_AUTO:
      break;
    case v1::ChatRequest::TOOL_CHOICE_NONE:
      prompt->tool_choice = ToolChoice::kNone;
      break;
    case v1::ChatRequest::TOOL_CHOICE_REQUIRED:
      prompt->tool_choice = ToolChoice::kRequired;
      prompt->tool_name = request.tool_name();
      return absl::OkStatus();
    default:
      return InvalidField("tool_choice", absl::StrCat(request.tool_choice(), " is none of its values"));
  }
  if (request.tool_name().empty()) return absl::OkStatus();
  return InvalidField("tool_name", "needs tool_choice REQUIRED");
}

absl::Status ReadAllowedTools(const v1::ChatRequest& request, ChatPrompt* prompt) {
  prompt->allowed_tools = {request.allowed_tools().begin(), request.allowed_tools().end()};
  if (prompt->allowed_tools.empty()) return absl::OkStatus();
  if (prompt->tool_choice == ToolChoice::kNone)
    return InvalidField("allowed_tools", "needs tool_choice AUTO or REQUIRED");
  if (!prompt->tool_name.empty()) return InvalidField("allowed_tools", "does not go with tool_name");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerateRequest> FromProto(v1::ChatRequest& request) {
  if (request.request().prompt_case() != v1::GenerateRequest::PROMPT_NOT_SET)
    return InvalidField("request.prompt", "does not go with messages; leave it out");
  auto prompt = std::make_shared<ChatPrompt>();
  prompt->bytes = static_cast<int64_t>(request.ByteSizeLong());
  prompt->messages = Json::array();
  for (v1::ChatMessage& message : *request.mutable_messages()) prompt->messages.push_back(FromProto(message));
  if (request.tools_size() > 0) prompt->tools = Json::array();
  for (int i = 0; i < request.tools_size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(Json tool, FromProto(absl::StrCat("tools[", i, "]"), request.tools(i)));
    prompt->tools.push_back(std::move(tool));
  }
  QUIRE_RETURN_IF_ERROR(
      ReadJson("chat_template_kwargs_json", request.chat_template_kwargs_json(), &prompt->template_kwargs));
  QUIRE_RETURN_IF_ERROR(ReadJson("documents_json", request.documents_json(), &prompt->documents));
  if (!request.chat_template().empty()) prompt->chat_template = request.chat_template();
  prompt->continue_final_message = request.continue_final_message();
  prompt->add_generation_prompt =
      request.has_add_generation_prompt() ? request.add_generation_prompt() : !request.continue_final_message();
  QUIRE_RETURN_IF_ERROR(ReadToolChoice(request, prompt.get()));
  QUIRE_RETURN_IF_ERROR(ReadAllowedTools(request, prompt.get()));
  prompt->parallel_tool_calls = !request.has_parallel_tool_calls() || request.parallel_tool_calls();

  v1::GenerateRequest& rest = *request.mutable_request();
  const bool add_special_tokens = rest.has_add_special_tokens() && rest.add_special_tokens();
  GenerateRequest out = FromProto(rest);
  out.add_special_tokens = add_special_tokens;
  out.prompt = std::move(prompt);
  return out;
}

}  // namespace quire
