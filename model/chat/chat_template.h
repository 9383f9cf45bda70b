#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/civil_time.h"
#include "model/chat/template.h"
#include "model/chat/tool_parser.h"
#include "nlohmann/json.hpp"

namespace quire {

// Where a model's chat template comes from. The caller reads the files; all texts are UTF-8.
struct ChatTemplateSource {
  // A file chat_template.jinja, or GGUF's tokenizer.chat_template. It wins over tokenizer_config.
  std::optional<std::string> text;
  // tokenizer_config.json, or null. Its chat_template is a template or a list of {name, template}: "default", and
  // "tool_use" for requests with tools. Its special tokens (bos_token, ...; text or {content}) become names in the
  // template.
  nlohmann::ordered_json tokenizer_config;
  // Further names with their text, such as the bos_token of a GGUF file. They win over tokenizer_config.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

struct ChatRequest {
  nlohmann::ordered_json messages;   // array of objects with a role
  nlohmann::ordered_json tools;      // array, or null
  nlohmann::ordered_json documents;  // array, or null
  nlohmann::ordered_json kwargs;     // object of further names, or null; they win over special tokens
  bool add_generation_prompt = true;
  // The rendering ends where the text of the last message does, so that the model goes on with it. Excludes
  // add_generation_prompt.
  bool continue_final_message = false;
  absl::CivilSecond now;  // what strftime_now tells: the local time
};

// What rendering small conversations at load showed. Nothing here is an error: a template that refuses every one of
// them still loads.
struct ChatTemplateFacts {
  bool null_content_is_empty =
      true;  // a message with calls and no content has content '' (else none): what shows its calls
  bool arguments_are_objects = true;           // of calls (else text): a request may have either
  bool iterates_content = false;               // parts of a message are passed as they are (else joined by newlines)
  bool supports_tools = false;                 // a tool's name shows in the rendering
  bool supports_tool_calls = false;            // a call's name shows in the rendering
  bool supports_system = false;                // a system message's text shows in the rendering
  bool knows_developers = false;               // the template speaks of a role developer
  ToolSyntax tool_syntax = ToolSyntax::kNone;  // in which a call shows
  ReasoningSyntax reasoning_syntax = ReasoningSyntax::kNone;  // kThink: the template speaks of </think>
};

// The chat template of a model: turns a conversation into the text that the model continues.
//
// Immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  // kNotFound if the source holds no template; kInvalidArgument with line and reason if it does not parse or the
  // configuration has a wrong type.
  static absl::StatusOr<ChatTemplate> Load(const ChatTemplateSource& source, const jinja::Limits& limits = {});

  // Content that is null or missing renders like an empty one. kInvalidArgument with raise_exception's own text if the
  // template refuses the conversation; else naming the field, or what is wrong in the template.
  absl::StatusOr<std::string> Render(const ChatRequest& request) const;

  const ChatTemplateFacts& facts() const { return facts_; }

 private:
  ChatTemplate(jinja::Template main, std::optional<jinja::Template> tool_use)
      : main_(std::move(main)), tool_use_(std::move(tool_use)) {}

  void Probe(std::string_view text);
  void ProbeCalls(const ChatRequest& request);
  absl::StatusOr<std::string> RenderMessages(const ChatRequest& request, nlohmann::ordered_json messages) const;

  jinja::Template main_;
  std::optional<jinja::Template> tool_use_;
  nlohmann::ordered_json names_ = nlohmann::ordered_json::object();  // special tokens
  ChatTemplateFacts facts_;
};

}  // namespace quire
