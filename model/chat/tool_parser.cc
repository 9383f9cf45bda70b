#include "model/chat/tool_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/chat/tool_format.h"

namespace quire {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kSpaces = " \n\r\t";

constexpr std::pair<std::string_view, ToolSyntax> kToolNames[] = {{"none", ToolSyntax::kNone},
                                                                  {"hermes", ToolSyntax::kHermes},
                                                                  {"llama3_json", ToolSyntax::kLlamaJson},
                                                                  {"mistral", ToolSyntax::kMistral},
                                                                  {"pythonic", ToolSyntax::kPythonic}};
constexpr std::pair<std::string_view, ReasoningSyntax> kReasoningNames[] = {{"none", ReasoningSyntax::kNone},
                                                                            {"think", ReasoningSyntax::kThink}};

}  // namespace

std::optional<ToolSyntax> ParseToolSyntax(std::string_view name) {
  for (const auto& [known, syntax] : kToolNames) {
    if (known == name) return syntax;
  }
  return std::nullopt;
}

std::optional<ReasoningSyntax> ParseReasoningSyntax(std::string_view name) {
  for (const auto& [known, syntax] : kReasoningNames) {
    if (known == name) return syntax;
  }
  return std::nullopt;
}

std::string_view Name(ToolSyntax syntax) {
  return std::find_if(std::begin(kToolNames), std::end(kToolNames),
                      [syntax](const auto& entry) { return entry.second == syntax; })
      ->first;
}

std::string_view Name(ReasoningSyntax syntax) { return syntax == ReasoningSyntax::kNone ? "none" : "think"; }

std::vector<std::string_view> MarksOf(const ReplySyntax& syntax) {
  std::vector<std::string_view> marks;
  if (syntax.reasoning != ReasoningSyntax::kNone) marks = {kThink, kThinkEnd};
  switch (syntax.tools) {
    case ToolSyntax::kNone:
    case ToolSyntax::kPythonic:
      break;
    case ToolSyntax::kHermes:
      marks.insert(marks.end(), {"<tool_call>", "</tool_call>"});
      break;
    case ToolSyntax::kLlamaJson:
      marks.emplace_back("<|python_tag|>");
      break;
    case ToolSyntax::kMistral:
      marks.insert(marks.end(), {"[TOOL_CALLS]", "[ARGS]"});
      break;
  }
  return marks;
}

ReplyParser::ReplyParser(ToolSyntax tools, ReasoningSyntax reasoning)
    : format_(MakeToolFormat(tools)), scan_(std::make_unique<CallScan>()), state_(State::kStart) {
  if (reasoning == ReasoningSyntax::kNone) state_ = State::kContent;
  if (reasoning == ReasoningSyntax::kThinkStarted) {
    state_ = State::kReasoning;
    skip_space_ = true;
  }
}

ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;

ReplyDelta ReplyParser::Feed(std::string_view text) {
  ReplyDelta delta;
  pending_ += text;
  Advance(false, &delta);
  return delta;
}

ReplyDelta ReplyParser::Finish() {
  ReplyDelta delta;
  Advance(true, &delta);
  if (state_ == State::kContent && !after_call_) delta.content += held_;
  held_.clear();
  return delta;
}

void ReplyParser::Advance(bool final, ReplyDelta* delta) {
  bool more = true;
  while (more) {
    switch (state_) {
      case State::kStart:
        more = AdvanceStart(final);
        break;
      case State::kReasoning:
        more = AdvanceReasoning(final, delta);
        break;
      case State::kContent:
        more = at_call_ ? AdvanceCall(final, delta) : AdvanceContent(final, delta);
        break;
    }
  }
  pending_.erase(0, std::exchange(taken_, 0));
}

// Whether the reply opens with reasoning.
bool ReplyParser::AdvanceStart(bool final) {
  const size_t spaces = SkipSpaces(rest(), 0);
  held_ += rest().substr(0, spaces);
  taken_ += spaces;
  if (rest().starts_with(kThink)) {
    taken_ += kThink.size();
    held_.clear();
    state_ = State::kReasoning;
    skip_space_ = true;
    return true;
  }
  if (!final && kThink.starts_with(rest())) return false;
  state_ = State::kContent;
  return true;
}

bool ReplyParser::AdvanceReasoning(bool final, ReplyDelta* delta) {
  const size_t end = rest().find(kThinkEnd);
  const bool ends = end != std::string_view::npos;
  const size_t safe = ends ? end : final ? rest().size() : SafePrefix(rest(), kThinkEnd);
  AddText(rest().substr(0, safe), &delta->reasoning);
  taken_ += safe;
  if (!ends) return false;
  taken_ += kThinkEnd.size();
  held_.clear();
  skip_space_ = true;
  state_ = State::kContent;
  return true;
}

bool ReplyParser::AddText(std::string_view text, std::string* out) {
  if (skip_space_) text.remove_prefix(SkipSpaces(text, 0));
  if (text.empty()) return false;
  skip_space_ = false;
  const size_t last = text.find_last_not_of(kSpaces);
  const size_t kept = last == std::string_view::npos ? 0 : last + 1;
  if (kept > 0) {
    *out += held_;
    held_.clear();
    *out += text.substr(0, kept);
  }
  held_ += text.substr(kept);
  return kept > 0;
}

void ReplyParser::AddContent(std::string_view text, ReplyDelta* delta) {
  if (!AddText(text, &delta->content)) return;
  seen_content_ = true;
  after_call_ = false;
}

bool ReplyParser::AdvanceContent(bool final, ReplyDelta* delta) {
  ToolFormat::Found found{false, rest().size()};
  if (format_ != nullptr) found = format_->Find(rest(), {!seen_content_, after_call_, final});
  AddContent(rest().substr(0, found.offset), delta);
  taken_ += found.offset;
  at_call_ = found.starts;
  return at_call_;
}

bool ReplyParser::AdvanceCall(bool final, ReplyDelta* delta) {
  auto parsed = format_->Parse(rest(), scan_.get(), final);
  if (!parsed.has_value()) return false;
  *scan_ = CallScan();
  at_call_ = false;
  if (parsed->calls.empty()) {
    AddContent(rest().substr(0, parsed->size), delta);
  } else {
    for (ToolCall& call : parsed->calls) delta->calls.push_back(std::move(call));
    held_.clear();
    skip_space_ = after_call_ = true;
  }
  taken_ += parsed->size;
  return true;
}

}  // namespace quire
