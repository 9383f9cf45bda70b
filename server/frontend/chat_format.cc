#include "server/frontend/chat_format.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "model/chat_source.h"
#include "server/frontend/chat_message.h"
#include "server/frontend/errors.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>";

// A template that comes with a request gets a part of what the model's own may use: loading it alone renders it up to
// eight times.
constexpr jinja::Limits kRequestLimits = {
    .max_steps = 500'000, .max_output_bytes = 16 << 20, .max_template_bytes = 1 << 20};

std::string_view WithoutTrailingSpace(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
}

// Whether the reply goes on inside reasoning that the prompt has opened: the generation prompt does, or the message
// that is continued.
bool OpensReasoning(const ChatPrompt& prompt, std::string_view text) {
  const Json& last = prompt.messages.back();
  const bool has_text = last.contains("content") && last["content"].is_string();
  const std::string_view said = has_text ? last["content"].get_ref<const std::string&>() : std::string_view();
  if (prompt.continue_final_message) {
    const size_t open = said.rfind(kThink);
    return last["role"] == "assistant" && open != said.npos && said.find(kThinkEnd, open) == said.npos;
  }
  std::string_view before = WithoutTrailingSpace(text);
  if (!before.ends_with(kThink)) return false;
  before = WithoutTrailingSpace(before.substr(0, before.size() - kThink.size()));
  // The last message may end so, and the template add nothing.
  const std::string_view end = WithoutTrailingSpace(said);
  return !end.ends_with(kThink) || before.ends_with(end);
}

}  // namespace

ChatFormat::ChatFormat(ChatTemplateSource source, const ChatFormatOptions& options, const Tokenizer& tokenizer)
    : source_(std::move(source)), options_(options) {
  if (options_.literal_special_tokens) literal_ = LiteralText(tokenizer);
  absl::StatusOr<ChatTemplate> loaded = ChatTemplate::Load(source_);
  if (loaded.ok()) {
    template_ = *std::move(loaded);
  } else {
    status_ = loaded.status();
  }
}

absl::StatusOr<std::shared_ptr<const ChatFormat>> ChatFormat::Load(const ChatFiles& files,
                                                                   const ChatFormatOptions& options,
                                                                   const Tokenizer& tokenizer) {
  absl::StatusOr<ChatTemplateSource> source;
  if (!files.tokenizer_path.empty()) source = ReadChatTemplateSource(files.tokenizer_path);
  if (files.tokenizer_path.empty() || (source.ok() && !HasChatTemplate(*source)))
    source = ReadChatTemplateSource(files.model_path);
  if (files.template_path.empty()) {
    if (!source.ok()) return std::make_shared<ChatFormat>(source.status());
    return std::make_shared<ChatFormat>(*std::move(source), options, tokenizer);
  }
  if (!source.ok()) source = ChatTemplateSource();  // then without the names of special tokens
  QUIRE_ASSIGN_OR_RETURN(source->text, ReadChatTemplateFile(files.template_path));
  auto format = std::make_shared<ChatFormat>(*std::move(source), options, tokenizer);
  if (format->status().ok()) return format;
  return absl::Status(format->status().code(),
                      absl::StrCat(files.template_path, ": ", std::string(format->status().message())));
}

ToolSyntax ChatFormat::tool_syntax() const {
  return options_.tool_syntax.value_or(template_ ? template_->facts().tool_syntax : ToolSyntax::kNone);
}

ReasoningSyntax ChatFormat::reasoning_syntax() const {
  return options_.reasoning_syntax.value_or(template_ ? template_->facts().reasoning_syntax : ReasoningSyntax::kNone);
}

absl::StatusOr<ChatText> ChatFormat::Render(const ChatPrompt& prompt) const {
  if (prompt.chat_template) {
    if (!options_.allow_request_template) {
      return InvalidField("chat_template",
                          "templates of requests are not allowed; the server's --allow-request-chat-template does");
    }
    ChatTemplateSource source = source_;
    source.text = prompt.chat_template;
    const absl::StatusOr<ChatTemplate> own = ChatTemplate::Load(source, kRequestLimits);
    if (!own.ok()) return InvalidField("chat_template", std::string(own.status().message()));
    return RenderWith(*own, prompt);
  }
  if (!template_) {
    return absl::InvalidArgumentError(absl::StrCat("this model cannot chat: ", std::string(status_.message()),
                                                   "; the server's --chat-template gives it a template"));
  }
  return RenderWith(*template_, prompt);
}

absl::StatusOr<ChatText> ChatFormat::RenderWith(const ChatTemplate& form, const ChatPrompt& prompt) const {
  QUIRE_RETURN_IF_ERROR(CheckChatPrompt(prompt));
  const bool has_tools = prompt.tools.is_array() && !prompt.tools.empty() && prompt.tool_choice != ToolChoice::kNone;
  if (has_tools && !form.facts().supports_tools && !options_.tool_syntax)
    return InvalidField("tools", "the model's chat template does not show tools; leave them out");

  ChatRequest request;
  request.messages = CleanMessages(prompt.messages, form.facts().knows_developers);
  if (has_tools) {
    for (const Json& tool : prompt.tools) {
      if (prompt.Allows(tool["function"]["name"].get_ref<const std::string&>())) request.tools.push_back(tool);
    }
  }
  request.documents = prompt.documents;
  request.kwargs = prompt.template_kwargs;
  request.add_generation_prompt = prompt.add_generation_prompt;
  request.continue_final_message = prompt.continue_final_message;
  request.now = absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());

  std::string mark;
  if (options_.literal_special_tokens) {
    QUIRE_RETURN_IF_ERROR(CheckRoles(request.messages));
    QUIRE_ASSIGN_OR_RETURN(mark,
                           literal_.Mark(&request.messages, {&request.tools, &request.documents, &request.kwargs}));
  }
  absl::StatusOr<std::string> rendered = form.Render(request);
  if (!rendered.ok()) {  // the template raised it, or something is wrong with it
    return InvalidField(prompt.chat_template ? "chat_template" : "messages", std::string(rendered.status().message()));
  }
  ChatText out;
  out.text = *std::move(rendered);
  if (!mark.empty()) out.literal = LiteralText::TakeMarks(mark, &out.text);
  if (has_tools) out.reply.tools = options_.tool_syntax.value_or(form.facts().tool_syntax);
  out.reply.reasoning = options_.reasoning_syntax.value_or(form.facts().reasoning_syntax);
  if (out.reply.reasoning != ReasoningSyntax::kNone && OpensReasoning(prompt, out.text))
    out.reply.reasoning = ReasoningSyntax::kThinkStarted;
  return out;
}

}  // namespace quire
