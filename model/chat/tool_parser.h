#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// How a family of models writes tool calls into its reply.
enum class ToolSyntax : uint8_t {
  kNone,       // never: all is content
  kHermes,     // <tool_call>{"name": "f", "arguments": {}}</tool_call>, anywhere; Hermes and Qwen
  kLlamaJson,  // {"name": "f", "parameters": {}} as the whole reply, several with ; between; or after <|python_tag|>
  kMistral,    // [TOOL_CALLS][{"name": "f", "arguments": {}}] or [TOOL_CALLS]f[ARGS]{}
  kPythonic,   // [f(a=1, b="x"), g()] as the whole reply; Llama 3.2 and 4
};

enum class ReasoningSyntax : uint8_t {
  kNone,
  kThink,         // <think> ... </think> at the start of the reply
  kThinkStarted,  // the prompt has opened <think> already
};

// What options call them: none, hermes, llama3_json, mistral, pythonic; none, think. Nullopt for other names.
std::optional<ToolSyntax> ParseToolSyntax(std::string_view name);
std::optional<ReasoningSyntax> ParseReasoningSyntax(std::string_view name);
std::string_view Name(ToolSyntax syntax);
std::string_view Name(ReasoningSyntax syntax);

// What to look for in a reply.
struct ReplySyntax {
  ToolSyntax tools = ToolSyntax::kNone;
  ReasoningSyntax reasoning = ReasoningSyntax::kNone;

  // All of a reply is content.
  bool is_plain() const { return tools == ToolSyntax::kNone && reasoning == ReasoningSyntax::kNone; }
};

// Texts that tell the parts of a reply apart; some tokenizers have special tokens for them.
std::vector<std::string_view> MarksOf(const ReplySyntax& syntax);

// Arguments: a JSON object, as text.
struct ToolCall {
  std::string name;
  std::string arguments;

  bool operator==(const ToolCall&) const = default;
};

// What a piece of the reply adds. Any part may be empty.
struct ReplyDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;

  bool operator==(const ReplyDelta&) const = default;
};

class ToolFormat;
struct CallScan;

// Splits a reply into reasoning, content and tool calls while it is generated. The sum of all deltas depends on the
// text alone, not on how it was cut into pieces; bytes of a character may come in different pieces. A call that does
// not parse comes out as content, its marks included: nothing but marks of whole calls and white space around calls and
// reasoning is left out. A call comes out when it is complete. The work is linear in the reply, however it is cut.
//
// One reply, one thread.
class ReplyParser {
 public:
  ReplyParser(ToolSyntax tools, ReasoningSyntax reasoning);
  ~ReplyParser();
  ReplyParser(ReplyParser&&) noexcept;

  ReplyDelta Feed(std::string_view text);
  // The end of the reply: what was held back. Feed must not follow.
  ReplyDelta Finish();

  // The text so far ends inside the reasoning.
  bool is_reasoning() const { return state_ == State::kReasoning; }

 private:
  enum class State : uint8_t { kStart, kReasoning, kContent };

  void Advance(bool final, ReplyDelta* delta);
  bool AdvanceStart(bool final);
  bool AdvanceReasoning(bool final, ReplyDelta* delta);
  bool AdvanceContent(bool final, ReplyDelta* delta);
  bool AdvanceCall(bool final, ReplyDelta* delta);
  std::string_view rest() const { return std::string_view(pending_).substr(taken_); }
  // Adds text whose white space at the end waits in held_; false if there is nothing else.
  bool AddText(std::string_view text, std::string* out);
  void AddContent(std::string_view text, ReplyDelta* delta);

  std::unique_ptr<const ToolFormat> format_;
  std::unique_ptr<CallScan> scan_;  // of the call that rest() may start with
  State state_ = State::kStart;
  std::string pending_;      // not yet decided, but for what is taken
  size_t taken_ = 0;         // bytes of pending_
  std::string held_;         // white space that goes if a call or the end of the reasoning follows
  bool at_call_ = false;     // rest() starts with what may be a call
  bool skip_space_ = false;  // white space after a call or the reasoning
  bool seen_content_ = false;
  bool after_call_ = false;  // nothing but white space since a call
};

}  // namespace quire
