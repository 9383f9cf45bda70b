#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"

namespace quire {

// The chat template of a model, its files read but nothing compiled. `path` is a folder of Hugging Face's form, a file
// in one (tokenizer.json), or a .gguf file:
//
//   folder  chat_template.jinja with additional_chat_templates/tool_use.jinja, else chat_template.json, else
//           tokenizer_config.json; names of special tokens from the last
//   .gguf   tokenizer.chat_template, tokenizer.chat_template.tool_use; names of special tokens from the vocabulary
//
// A model without a template gives a source without one. kInvalidArgument naming the file and what is wrong.
absl::StatusOr<ChatTemplateSource> ReadChatTemplateSource(const std::string& path);

// The text of a file that holds one template. kNotFound; kInvalidArgument for more than 4 MiB.
absl::StatusOr<std::string> ReadChatTemplateFile(const std::string& path);

// Whether the source holds any template.
bool HasChatTemplate(const ChatTemplateSource& source);

}  // namespace quire
