#pragma once

#include <optional>

#include "model/chat/tool_parser.h"

namespace quire {

// How conversations are dealt with; constant for the life of the process.
struct ChatFormatOptions {
  std::optional<ToolSyntax> tool_syntax;            // unset: what the template shows
  std::optional<ReasoningSyntax> reasoning_syntax;  // unset: what the template speaks of
  // Special tokens that a request spells in its messages are text, so that nobody can write turns of others. Otherwise
  // they are tokens, as in vLLM.
  bool literal_special_tokens = false;
  bool allow_request_template = false;  // a request may bring a template of its own
};

}  // namespace quire
