#include "server/http/chat_request.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"
#include "server/frontend/tool_choice.h"
#include "server/http/sampling_fields.h"

namespace quire {
namespace {

Json Take(Json* body, const char* name) {
  const auto found = body->find(name);
  return found == body->end() ? Json(nullptr) : std::move(*found);
}

// logprobs says whether, top_logprobs how many.
void ReadLogprobs(JsonFields& fields, GenerateRequest* out) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.Int("top_logprobs");
  if (wanted) out->logprobs = top.value_or(0);
  if (!wanted && top.value_or(0) != 0) fields.Refuse("top_logprobs", "needs logprobs to be true");
}

void RefuseOtherModes(JsonFields& fields) {
  RefuseUnlessEmpty(fields, "functions");
  RefuseUnlessEmpty(fields, "audio");
  if (fields.Bool("echo").value_or(false)) fields.Refuse("echo", "is not supported here; leave it out");
  for (const std::string& mode : fields.Strings("modalities")) {
    if (mode != "text") fields.Refuse("modalities", "may hold 'text' alone");
  }
}

}  // namespace

ChatPrompt ReadChatPrompt(JsonFields& fields, Json* body) {
  ChatPrompt prompt;
  prompt.chat_template = fields.String("chat_template");
  prompt.continue_final_message = fields.Bool("continue_final_message").value_or(false);
  prompt.add_generation_prompt = fields.Bool("add_generation_prompt").value_or(!prompt.continue_final_message);
  if (const Json* const choice = fields.Get("tool_choice")) fields.Fail(ReadToolChoice(*choice, &prompt));
  prompt.parallel_tool_calls = fields.Bool("parallel_tool_calls").value_or(true);
  const std::optional<std::string> effort = fields.String("reasoning_effort");
  prompt.messages = Take(body, "messages");
  prompt.tools = Take(body, "tools");
  prompt.documents = Take(body, "documents");
  prompt.template_kwargs = Take(body, "chat_template_kwargs");
  if (effort && (prompt.template_kwargs.is_null() || prompt.template_kwargs.is_object())) {
    if (!prompt.template_kwargs.contains("reasoning_effort")) prompt.template_kwargs["reasoning_effort"] = *effort;
  }
  return prompt;
}

absl::StatusOr<CompletionRequest> ParseChatRequest(const HttpRequest& request, Json body) {
  CompletionRequest out;
  out.is_chat = true;
  GenerateRequest& generate = out.common;
  generate.add_special_tokens = false;  // the template writes them
  JsonFields fields(body);
  ReadLogprobs(fields, &generate);
  RefuseOtherModes(fields);
  out.field_names = {{"prompt", "messages"}, {"output.logprobs", "top_logprobs"}};
  generate.max_tokens = fields.Int("max_completion_tokens");
  if (generate.max_tokens) out.field_names.emplace_back("stopping.max_tokens", "max_completion_tokens");
  const std::optional<int64_t> max_tokens = fields.Int("max_tokens");  // OpenAI's older name
  if (!generate.max_tokens) generate.max_tokens = max_tokens;
  auto prompt = std::make_shared<ChatPrompt>(ReadChatPrompt(fields, &body));
  prompt->bytes = static_cast<int64_t>(request.body.size());
  QUIRE_RETURN_IF_ERROR(ReadSharedFields(request, fields, &out));
  out.prompts.emplace_back(std::move(prompt));
  return out;
}

}  // namespace quire
