#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/frontend/chat_format.h"
#include "tests/testing/fake_engine.h"
#include "tests/testing/fake_tokenizer.h"

// What tests of chats share: a template, and replies that an engine gives byte by byte.
namespace quire::testing {

// Shows tools and calls as Hermes does, and speaks of reasoning.
inline constexpr char kChatTemplate[] =
    "{% if tools %}{{ tools | map(attribute='function') | map(attribute='name') | join(',') }};{% endif %}"
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content.split('</think>')[-1] }}{% for c in m.tool_calls %}<tool_call>"
    "{\"name\": \"{{ c.function.name }}\"}</tool_call>{% endfor %};{% endfor %}"
    "{% if add_generation_prompt %}a:{% if think %}<think>{% endif %}{% endif %}";

inline std::shared_ptr<const ChatFormat> MakeChatFormat(const Tokenizer& tokenizer,
                                                        const std::string& text = kChatTemplate,
                                                        const ChatFormatOptions& options = {}) {
  ChatTemplateSource source;
  source.text = text;
  return std::make_shared<ChatFormat>(std::move(source), options, tokenizer);
}

// Each byte is a token, the end is one as well, unless `reason` is kNone.
inline void EmitReply(FakeEngine& engine, uint64_t handle, std::string_view text,
                      FinishReason reason = FinishReason::kStop) {
  for (const char c : text) engine.EmitToken(handle, static_cast<unsigned char>(c));
  if (reason != FinishReason::kNone) engine.EmitToken(handle, FakeTokenizer::kEos, reason);
}

}  // namespace quire::testing
