#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "model/chat/tool_parser.h"
#include "model/tokenizer/tokenizer.h"
#include "server/frontend/chat_options.h"
#include "server/frontend/chat_prompt.h"
#include "server/frontend/literal_text.h"

namespace quire {

// Where a model's template is.
struct ChatFiles {
  std::string model_path;
  std::string tokenizer_path;  // where it is looked for first; empty: only with the model
  std::string template_path;   // a file with one that wins over theirs; empty: none
};

// A conversation as text, and how to read the reply to it.
struct ChatText {
  std::string text;
  std::vector<TextRange> literal;  // of the text: EncodeOptions::literal
  ReplySyntax reply;
};

// How a model chats: its template, and the forms of its tool calls and its reasoning. Immutable, any thread.
class ChatFormat {
 public:
  // For a source without a template, or with one that does not compile, status() tells why, and every request gets that
  // as its answer, but for one that brings a template. `tokenizer` is looked at here only.
  ChatFormat(ChatTemplateSource source, const ChatFormatOptions& options, const Tokenizer& tokenizer);
  // With the template of `files`. An error only if template_path is given and no template that works is there:
  // otherwise status() of what is returned tells it.
  static absl::StatusOr<std::shared_ptr<const ChatFormat>> Load(const ChatFiles& files,
                                                                const ChatFormatOptions& options,
                                                                const Tokenizer& tokenizer);
  // The source could not even be read.
  explicit ChatFormat(absl::Status problem) : status_(std::move(problem)) {}

  const absl::Status& status() const { return status_; }
  const ChatFormatOptions& options() const { return options_; }
  ToolSyntax tool_syntax() const;
  ReasoningSyntax reasoning_syntax() const;

  // Takes as long as the conversation is. Errors by InvalidField: a message or tool that is malformed, parts that are
  // no text, a conversation that the template refuses.
  absl::StatusOr<ChatText> Render(const ChatPrompt& prompt) const;

 private:
  absl::StatusOr<ChatText> RenderWith(const ChatTemplate& form, const ChatPrompt& prompt) const;

  ChatTemplateSource source_;
  ChatFormatOptions options_;
  absl::Status status_;
  std::optional<ChatTemplate> template_;
  LiteralText literal_;
};

}  // namespace quire
