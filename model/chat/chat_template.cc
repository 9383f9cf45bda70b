#include "model/chat/chat_template.h"

#include <string>

#include "model/chat/cat.h"
#include "model/chat/continue_message.h"
#include "model/chat/normalize_message.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// A special token of tokenizer_config.json: its text, or an object with it as content.
std::optional<std::string> TokenText(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return std::nullopt;
}

Json SpecialTokenNames(const ChatTemplateSource& source) {
  Json names = Json::object();
  const Json& config = source.tokenizer_config;
  for (const std::string_view name : kSpecialTokens) {
    const std::string key(name);
    if (!config.is_object() || !config.contains(key)) continue;
    if (const auto text = TokenText(config[key]); text.has_value()) names[key] = *text;
  }
  for (const auto& [name, text] : source.special_tokens) names[name] = text;
  return names;
}

struct TemplateTexts {
  std::optional<std::string> main;
  std::optional<std::string> tool_use;
};

absl::StatusOr<TemplateTexts> NamedTemplates(const Json& list) {
  TemplateTexts texts;
  for (const Json& entry : list) {
    const bool valid = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("template") && entry["template"].is_string();
    if (!valid)
      return absl::InvalidArgumentError("tokenizer_config chat_template: an entry lacks a name or a template");
    if (entry["name"] == "default") texts.main = entry["template"].get<std::string>();
    if (entry["name"] == "tool_use") texts.tool_use = entry["template"].get<std::string>();
  }
  if (!texts.main.has_value()) return absl::NotFoundError("tokenizer_config chat_template: no entry is named default");
  return texts;
}

absl::StatusOr<TemplateTexts> FindTemplates(const ChatTemplateSource& source) {
  if (source.text.has_value()) return TemplateTexts{source.text, std::nullopt};
  const Json& config = source.tokenizer_config;
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"].is_null()) {
    return absl::NotFoundError("the model has no chat template");
  }
  const Json& found = config["chat_template"];
  if (found.is_string()) return TemplateTexts{found.get<std::string>(), std::nullopt};
  if (found.is_array()) return NamedTemplates(found);
  return absl::InvalidArgumentError(
      jinja::Cat("tokenizer_config chat_template: a string or a list is expected, not ", found.type_name()));
}

Json Message(std::string role, Json content) {
  Json message = Json::object();
  message["role"] = std::move(role);
  message["content"] = std::move(content);
  return message;
}

Json Tool(const std::string& name) {
  Json tool = Json::parse(R"({"type": "function", "function": {"name": "", "description": "d", "parameters":
      {"type": "object", "properties": {"a": {"type": "string", "description": "d"}}, "required": ["a"]}}})");
  tool["function"]["name"] = name;
  return tool;
}

// How a call of `name` with the argument a is written at its first place in `rendered`.
ToolSyntax SyntaxOfCall(std::string_view rendered, std::string_view name) {
  const size_t at = rendered.find(name);
  if (at == std::string_view::npos) return ToolSyntax::kNone;
  const std::string_view before = rendered.substr(0, at);
  const std::string_view after = rendered.substr(at + name.size());
  if (before.ends_with('[') && after.starts_with('(')) return ToolSyntax::kPythonic;
  const auto follows = [before](std::string_view mark, char first) {
    const size_t found = before.rfind(mark);
    if (found == std::string_view::npos) return false;
    const size_t next = before.find_first_not_of(" \n", found + mark.size());
    return next == std::string_view::npos || before[next] == first;
  };
  if (follows("[TOOL_CALLS]", '[')) return ToolSyntax::kMistral;
  const size_t quote = before.find_last_not_of(" ", before.size() - 2);  // the colon, if the name is a JSON string
  const bool is_json = before.ends_with('"') && quote != std::string_view::npos && before[quote] == ':';
  if (!is_json) return ToolSyntax::kNone;
  if (follows("<tool_call>", '{')) return ToolSyntax::kHermes;
  const bool has_parameters = after.substr(0, 32).find("\"parameters\"") != std::string_view::npos;
  return has_parameters || follows("<|python_tag|>", '{') ? ToolSyntax::kLlamaJson : ToolSyntax::kNone;
}

bool Shows(const absl::StatusOr<std::string>& rendered, std::string_view text) {
  return rendered.ok() && rendered->find(text) != std::string::npos;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const ChatTemplateSource& source, const jinja::Limits& limits) {
  const auto texts = FindTemplates(source);
  if (!texts.ok()) return texts.status();
  auto main = jinja::Template::Compile(*texts->main, limits);
  if (!main.ok()) return main.status();
  std::optional<jinja::Template> tool_use;
  if (texts->tool_use.has_value()) {
    auto compiled = jinja::Template::Compile(*texts->tool_use, limits);
    if (!compiled.ok()) return compiled.status();
    tool_use = *std::move(compiled);
  }
  ChatTemplate out(*std::move(main), std::move(tool_use));
  out.names_ = SpecialTokenNames(source);
  out.Probe(*texts->main);
  return out;
}

void ChatTemplate::Probe(std::string_view text) {
  facts_.knows_developers = text.find("developer") != std::string_view::npos;
  if (text.find("</think>") != std::string_view::npos) facts_.reasoning_syntax = ReasoningSyntax::kThink;
  constexpr std::string_view kMark = "qPROBEq";
  const Json mark = std::string(kMark);
  ChatRequest request;
  request.now = absl::CivilSecond(2000, 1, 1);
  const auto render = [&](std::initializer_list<Json> messages) {
    Json list = Json::array();
    for (const Json& message : messages) list.push_back(message);
    return RenderMessages(request, std::move(list));
  };
  facts_.supports_system = Shows(render({Message("system", mark), Message("user", "x")}), kMark);

  // Parts as they are: text that shows once, and not as Python would print a list.
  Json part = Json::object();
  part["type"] = "text";
  part["text"] = mark;
  const auto parts = render({Message("user", Json::array({part}))});
  facts_.iterates_content = Shows(parts, kMark) && !Shows(parts, "'text'") && !Shows(parts, "\"text\"");

  ProbeCalls(request);

  request.tools = Json::array({Tool(std::string(kMark))});
  facts_.supports_tools = Shows(render({Message("user", "x")}), kMark);
}

// How a message with calls and no content must look: arguments as objects or text, content '' or none. The first way
// that shows the call; for a template that never shows it, the first that renders.
void ChatTemplate::ProbeCalls(const ChatRequest& request) {
  constexpr char kName[] = "qCALLq";
  bool renders = false;
  for (const bool objects : {true, false}) {
    for (const bool empty : {true, false}) {
      const Json arguments = Json::parse(R"({"a": "b"})");
      Json call = Json::parse(R"({"id": "call00000", "type": "function", "function": {}})");
      call["function"]["name"] = kName;
      call["function"]["arguments"] = objects ? arguments : Json(arguments.dump());
      Json message = Message("assistant", empty ? Json("") : Json(nullptr));
      message["tool_calls"] = Json::array({call});
      const auto rendered = RenderMessages(request, Json::array({Message("user", "x"), message}));
      facts_.supports_tool_calls = Shows(rendered, kName);
      if (facts_.supports_tool_calls || (rendered.ok() && !renders)) {
        facts_.arguments_are_objects = objects;
        facts_.null_content_is_empty = empty;
      }
      if (facts_.supports_tool_calls) {
        facts_.tool_syntax = SyntaxOfCall(*rendered, kName);
        return;
      }
      renders = renders || rendered.ok();
    }
  }
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  if (!request.messages.is_array()) return absl::InvalidArgumentError("messages must be an array");
  if (request.continue_final_message && request.add_generation_prompt) {
    return absl::InvalidArgumentError("continue_final_message and add_generation_prompt exclude each other");
  }
  Json messages = Json::array();
  for (const Json& message : request.messages) {
    if (!message.is_object()) {
      return absl::InvalidArgumentError(
          jinja::Cat("messages[", messages.size(), "] must be an object, not ", message.type_name()));
    }
    messages.push_back(NormalizeMessage(message, facts_));
  }
  if (!request.continue_final_message) return RenderMessages(request, std::move(messages));
  const auto continued = MarkFinalMessage(&messages);
  if (!continued.ok()) return continued.status();
  const auto rendered = RenderMessages(request, std::move(messages));
  if (!rendered.ok()) return rendered.status();
  return CutAtMark(*rendered, *continued);
}

absl::StatusOr<std::string> ChatTemplate::RenderMessages(const ChatRequest& request,
                                                         nlohmann::ordered_json messages) const {
  Json context = names_;
  context["messages"] = std::move(messages);
  context["tools"] = request.tools;
  context["documents"] = request.documents;
  context["add_generation_prompt"] = request.add_generation_prompt;
  if (request.kwargs.is_object()) {
    for (const auto& [name, value] : request.kwargs.items()) context[name] = value;
  } else if (!request.kwargs.is_null()) {
    return absl::InvalidArgumentError("the further names of a chat template must be an object");
  }
  const bool uses_tools = tool_use_.has_value() && request.tools.is_array();
  return (uses_tools ? *tool_use_ : main_).Render(context, request.now);
}

}  // namespace quire
