// Any bytes as the body of an HTTP request, a chat if it has messages: an error that names what is wrong, or requests
// that the validator takes or refuses. A conversation is rendered, too.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "kernels/base/check.h"
#include "model/tokenizer/utf8.h"
#include "server/frontend/validator.h"
#include "server/http/chat_request.h"
#include "server/http/completion_request.h"
#include "server/http/http_errors.h"
#include "server/http/json_fields.h"
#include "tests/server/chat_replies.h"

namespace quire {
namespace {

RequestLimits Limits() {
  RequestLimits limits;
  limits.served_model_names = {"m"};
  limits.vocab_size = 1000;
  limits.max_model_len = 512;
  limits.max_text_bytes = 1 << 16;
  return limits;
}

// A client hears of it in JSON.
void CheckError(const absl::Status& status) {
  const int code = HttpStatusOf(status);
  QUIRE_CHECK(code >= 400 && code < 500);
  QUIRE_CHECK(ParseBody(ErrorBody(status)).ok());
}

void CheckChat(const ChatFormat& format, const ChatPrompt& prompt) {
  const absl::StatusOr<ChatText> chat = format.Render(prompt);
  if (!chat.ok()) return CheckError(chat.status());
  QUIRE_CHECK(utf8::IsValid(chat->text));
  size_t end = 0;
  for (const TextRange& range : chat->literal) {
    QUIRE_CHECK(range.begin >= end && range.end >= range.begin && range.end <= chat->text.size());
    end = range.end;
  }
}

void Use(const std::string& bytes) {
  static const Validator validator(Limits());
  static const testing::FakeTokenizer tokenizer({"<tool_call>"});
  static const auto parsed = testing::MakeChatFormat(tokenizer);
  static const auto literal = [] {
    ChatFormatOptions options;
    options.literal_special_tokens = true;
    return testing::MakeChatFormat(tokenizer, testing::kChatTemplate, options);
  }();
  absl::StatusOr<Json> body = ParseBody(bytes);
  if (!body.ok()) return CheckError(body.status());
  absl::StatusOr<CompletionRequest> request = body->contains("messages")
                                                  ? ParseChatRequest(HttpRequest(), *std::move(body))
                                                  : ParseCompletionRequest(HttpRequest(), *body);
  if (!request.ok()) return CheckError(request.status());
  QUIRE_CHECK(!request->prompts.empty());
  for (size_t i = 0; i < request->prompts.size(); ++i) {
    GenerateRequest prompt = request->Take(i);
    if (const auto* const chat = std::get_if<std::shared_ptr<const ChatPrompt>>(&prompt.prompt)) {
      CheckChat(*parsed, **chat);
      CheckChat(*literal, **chat);
    }
    const absl::StatusOr<ValidatedRequest> valid = validator.Validate(std::move(prompt));
    if (!valid.ok()) {
      CheckError(valid.status());
      continue;
    }
    // It goes into a header of the answer.
    QUIRE_CHECK(valid->request_id.find_first_of("\r\n") == std::string::npos);
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::Use(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
