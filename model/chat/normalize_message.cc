#include "model/chat/normalize_message.h"

#include <optional>
#include <string>

#include "model/chat/bounded_json.h"
#include "model/chat/error.h"
#include "model/chat/methods.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// The texts of a message's parts with newlines between. Nullopt if there is a part of another kind.
std::optional<std::string> JoinedText(const Json& parts) {
  std::string text;
  bool first = true;
  for (const Json& part : parts) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text && !part.is_string()) return std::nullopt;
    if (!first) text += '\n';
    first = false;
    text += is_text ? part["text"].get_ref<const std::string&>() : part.get_ref<const std::string&>();
  }
  return text;
}

bool HasCalls(const Json& message) {
  return message.contains("tool_calls") && message["tool_calls"].is_array() && !message["tool_calls"].empty();
}

void NormalizeContent(const ChatTemplateFacts& facts, Json* message) {
  if (!message->contains("content") || (*message)["content"].is_null() || (*message)["content"] == "") {
    const bool empty = facts.null_content_is_empty || !HasCalls(*message);
    (*message)["content"] = empty ? Json("") : Json(nullptr);
    return;
  }
  Json& content = (*message)["content"];
  if (!content.is_array() || facts.iterates_content) return;
  if (auto text = JoinedText(content); text.has_value()) content = *std::move(text);
}

// The text of arguments as Python's json.dumps writes them.
std::optional<std::string> ArgumentsText(const Json& arguments) {
  try {
    jinja::Budget budget{jinja::Limits{}};
    return jinja::DumpJson(budget, jinja::Value::FromJson(arguments), {});
  } catch (const jinja::TemplateError&) {
    return std::nullopt;
  }
}

void NormalizeArguments(const ChatTemplateFacts& facts, Json* call) {
  if (!call->is_object() || !call->contains("function") || !(*call)["function"].is_object()) return;
  Json& function = (*call)["function"];
  if (!function.contains("arguments")) return;
  Json& arguments = function["arguments"];
  if (facts.arguments_are_objects && arguments.is_string()) {
    Json object = ParseBoundedJson(arguments.get_ref<const std::string&>());
    if (object.is_object()) arguments = std::move(object);
  } else if (!facts.arguments_are_objects && arguments.is_object()) {
    if (auto text = ArgumentsText(arguments); text.has_value()) arguments = *std::move(text);
  }
}

}  // namespace

nlohmann::ordered_json NormalizeMessage(nlohmann::ordered_json message, const ChatTemplateFacts& facts) {
  NormalizeContent(facts, &message);
  if (HasCalls(message)) {
    for (Json& call : message["tool_calls"]) NormalizeArguments(facts, &call);
  }
  return message;
}

}  // namespace quire
