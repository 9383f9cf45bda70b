#include "server/frontend/chat_message.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

bool HasString(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string();
}

bool IsAbsent(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null();
}

absl::Status CheckPart(const std::string& field, const Json& part) {
  if (part.is_string()) return absl::OkStatus();
  if (!part.is_object())
    return InvalidField(field, absl::StrCat("must be an object or a string, not ", part.type_name()));
  if (HasString(part, "type")) {
    const std::string& type = part["type"].get_ref<const std::string&>();
    if (type != "text")
      return InvalidField(absl::StrCat(field, ".type"),
                          absl::StrCat(Quoted(type), " is not supported; this server takes text only"));
  }
  if (!HasString(part, "text")) return InvalidField(absl::StrCat(field, ".text"), "must be a string");
  return absl::OkStatus();
}

absl::Status CheckContent(const std::string& field, const Json& content) {
  if (content.is_null() || content.is_string()) return absl::OkStatus();
  if (!content.is_array())
    return InvalidField(field, absl::StrCat("must be a string or a list of parts, not ", content.type_name()));
  for (size_t i = 0; i < content.size(); ++i)
    QUIRE_RETURN_IF_ERROR(CheckPart(absl::StrCat(field, "[", i, "]"), content[i]));
  return absl::OkStatus();
}

absl::Status CheckCall(const std::string& field, const Json& call) {
  if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
    return InvalidField(field, "must be an object with a function");
  const Json& function = call["function"];
  if (!HasString(function, "name")) return InvalidField(absl::StrCat(field, ".function.name"), "must be a string");
  const bool has_arguments =
      IsAbsent(function, "arguments") || HasString(function, "arguments") || function["arguments"].is_object();
  if (!has_arguments)
    return InvalidField(absl::StrCat(field, ".function.arguments"), "must be the text of a JSON object");
  return absl::OkStatus();
}

absl::Status CheckMessage(const std::string& field, const Json& message) {
  if (!message.is_object()) return InvalidField(field, absl::StrCat("must be an object, not ", message.type_name()));
  if (!HasString(message, "role")) return InvalidField(absl::StrCat(field, ".role"), "must be a string");
  if (message.contains("content"))
    QUIRE_RETURN_IF_ERROR(CheckContent(absl::StrCat(field, ".content"), message["content"]));
  if (IsAbsent(message, "tool_calls")) return absl::OkStatus();
  const Json& calls = message["tool_calls"];
  if (!calls.is_array()) return InvalidField(absl::StrCat(field, ".tool_calls"), "must be a list");
  for (size_t i = 0; i < calls.size(); ++i)
    QUIRE_RETURN_IF_ERROR(CheckCall(absl::StrCat(field, ".tool_calls[", i, "]"), calls[i]));
  return absl::OkStatus();
}

absl::Status CheckTool(const std::string& field, const Json& tool) {
  if (!tool.is_object()) return InvalidField(field, absl::StrCat("must be an object, not ", tool.type_name()));
  if (!HasString(tool, "type") || tool["type"] != "function")
    return InvalidField(absl::StrCat(field, ".type"), "must be 'function'");
  if (!tool.contains("function") || !tool["function"].is_object())
    return InvalidField(absl::StrCat(field, ".function"), "must be an object");
  const Json& function = tool["function"];
  if (!HasString(function, "name") || function["name"] == "")
    return InvalidField(absl::StrCat(field, ".function.name"), "must be a string that is not empty");
  if (!IsAbsent(function, "description") && !HasString(function, "description"))
    return InvalidField(absl::StrCat(field, ".function.description"), "must be a string");
  if (!IsAbsent(function, "parameters") && !function["parameters"].is_object())
    return InvalidField(absl::StrCat(field, ".function.parameters"), "must be a JSON Schema, an object");
  return absl::OkStatus();
}

absl::Status CheckAllowedTools(const ChatPrompt& prompt) {
  std::set<std::string_view> known;
  for (const Json& tool : prompt.tools) known.insert(tool["function"]["name"].get_ref<const std::string&>());
  for (const std::string& name : prompt.allowed_tools) {
    if (!known.contains(name)) return InvalidField("tool_choice", absl::StrCat(Quoted(name), " is none of the tools"));
  }
  return absl::OkStatus();
}

// Names that have a field of their own.
absl::Status CheckKwargs(const Json& kwargs) {
  if (kwargs.is_null()) return absl::OkStatus();
  if (!kwargs.is_object()) return InvalidField("chat_template_kwargs", "must be an object");
  for (const char* const name :
       {"messages", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message"}) {
    if (kwargs.contains(name))
      return InvalidField(absl::StrCat("chat_template_kwargs.", name),
                          "is not allowed here; there is a field of that name");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckChatPrompt(const ChatPrompt& prompt) {
  if (!prompt.messages.is_array() || prompt.messages.empty())
    return InvalidField("messages", "must be a list of at least one message");
  for (size_t i = 0; i < prompt.messages.size(); ++i)
    QUIRE_RETURN_IF_ERROR(CheckMessage(absl::StrCat("messages[", i, "]"), prompt.messages[i]));
  if (!prompt.tools.is_null() && !prompt.tools.is_array()) return InvalidField("tools", "must be a list");
  for (size_t i = 0; i < prompt.tools.size(); ++i)
    QUIRE_RETURN_IF_ERROR(CheckTool(absl::StrCat("tools[", i, "]"), prompt.tools[i]));
  QUIRE_RETURN_IF_ERROR(CheckAllowedTools(prompt));
  if (!prompt.documents.is_null() && !prompt.documents.is_array()) return InvalidField("documents", "must be a list");
  if (prompt.continue_final_message && prompt.add_generation_prompt) {
    return InvalidField("continue_final_message", "does not go with add_generation_prompt; set that to false");
  }
  return CheckKwargs(prompt.template_kwargs);
}

absl::Status CheckRoles(const Json& messages) {
  static constexpr std::string_view kRoles[] = {"system", "developer", "user",   "assistant",
                                                "tool",   "function",  "ipython"};
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i]["role"].get_ref<const std::string&>();
    if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles))
      return InvalidField(absl::StrCat("messages[", i, "].role"),
                          absl::StrCat(Quoted(role), " is no role that is known here"));
  }
  return absl::OkStatus();
}

Json CleanMessages(const Json& messages, bool knows_developers) {
  Json clean = Json::array();
  for (const Json& message : messages) {
    Json out = Json::object();
    for (const auto& [name, value] : message.items()) {
      if (!value.is_null() || name == "content") out[name] = value;
    }
    if (out["role"] == "developer" && !knows_developers) out["role"] = "system";
    clean.push_back(std::move(out));
  }
  return clean;
}

}  // namespace quire
