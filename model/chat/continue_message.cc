#include "model/chat/continue_message.h"

#include "model/chat/text.h"

namespace quire {
namespace {

// Ends in a space: whether it is still there tells whether the template strips messages.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kBareMark = kMark.substr(0, kMark.size() - 1);

absl::Status NoText() {
  return absl::InvalidArgumentError("continue_final_message: the last message has no text to continue");
}

}  // namespace

absl::StatusOr<std::string> MarkFinalMessage(nlohmann::ordered_json* messages) {
  if (messages->empty() || !messages->back().contains("content")) return NoText();
  nlohmann::ordered_json* text = &messages->back()["content"];
  if (text->is_array()) {
    nlohmann::ordered_json* last = nullptr;
    for (auto& part : *text) {
      if (part.is_object() && part.contains("text")) last = &part["text"];
    }
    text = last;
  }
  if (text == nullptr || !text->is_string()) return NoText();
  std::string before = text->get<std::string>();
  *text = before + std::string(kMark);
  return before;
}

absl::StatusOr<std::string> CutAtMark(std::string_view rendered, std::string_view final_text) {
  const std::string_view stripped = jinja::Strip(final_text, nullptr, true, true);
  const size_t mark = rendered.rfind(kBareMark);
  if (mark == std::string_view::npos || rendered.find(stripped) == std::string_view::npos) {
    return absl::InvalidArgumentError(
        "continue_final_message: the chat template does not render the last message as it is");
  }
  std::string_view kept = rendered.substr(0, mark);
  if (!rendered.substr(mark).starts_with(kMark)) kept = jinja::Strip(kept, nullptr, false, true);
  return std::string(kept);
}

}  // namespace quire
