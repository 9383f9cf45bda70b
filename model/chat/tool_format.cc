#include "model/chat/tool_format.h"

#include <algorithm>

#include "model/chat/bounded_json.h"
#include "nlohmann/json.hpp"

// The formats whose calls are JSON.
namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxNesting = 200;  // of brackets: nlohmann writes values by recursion

// {"name": "f", "arguments": {...}}, or "parameters". Arguments given as a string must hold an object.
std::optional<ToolCall> CallOf(const Json& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return std::nullopt;
  const char* const key = value.contains("arguments") ? "arguments" : "parameters";
  ToolCall call{value["name"].get<std::string>(), "{}"};
  if (!value.contains(key)) return std::nullopt;
  const Json& arguments = value[key];
  if (arguments.is_string()) {
    const Json inner = ParseBoundedJson(arguments.get_ref<const std::string&>());
    if (!inner.is_object()) return std::nullopt;
    call.arguments = arguments.get<std::string>();
  } else if (arguments.is_object()) {
    call.arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (!arguments.is_null()) {
    return std::nullopt;
  }
  return call;
}

ToolFormat::Found FindMark(std::string_view text, std::string_view mark, bool final) {
  const size_t at = text.find(mark);
  if (at != std::string_view::npos) return {true, at};
  return {false, final ? text.size() : SafePrefix(text, mark)};
}

class HermesFormat : public ToolFormat {
 public:
  Found Find(std::string_view text, ReplyPlace place) const override { return FindMark(text, kMark, place.final); }

  std::optional<Parsed> Parse(std::string_view text, CallScan* scan, bool final) const override {
    const size_t start = scan->start = SkipSpaces(text, std::max(scan->start, kMark.size()));
    const bool is_object = start < text.size() && text[start] == '{';
    const size_t end = is_object ? scan->value.End(text, start, "\"") : std::string_view::npos;
    // An object that has not ended yet may hold the closing mark in a string.
    if (is_object && end == std::string_view::npos && !final) return std::nullopt;
    if (end != std::string_view::npos) {
      const size_t close = scan->close = SkipSpaces(text, std::max(scan->close, end));
      const std::string_view rest = text.substr(close);
      if (!final && kEnd.starts_with(rest.substr(0, kEnd.size())) && rest.size() < kEnd.size()) return std::nullopt;
      // The end of the reply may take the place of the closing mark.
      if (rest.starts_with(kEnd) || rest.empty()) {
        const size_t size = std::min(text.size(), close + kEnd.size());
        if (auto call = CallOf(ParseBoundedJson(text.substr(start, end - start))); call.has_value())
          return Parsed{size, {*std::move(call)}};
        return Parsed{size, {}};
      }
    }
    // Broken: content up to the closing mark.
    const size_t close = scan->Find(text, kEnd);
    if (close != std::string_view::npos) return Parsed{close + kEnd.size(), {}};
    return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
  }

 private:
  static constexpr std::string_view kMark = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";
};

class LlamaFormat : public ToolFormat {
 public:
  Found Find(std::string_view text, ReplyPlace place) const override {
    if (place.at_start || place.after_call) {
      const size_t first = SkipSpaces(text, 0);
      if (first == text.size()) return {false, first};
      if (text[first] == '{' || (place.after_call && text[first] == kSeparator)) return {true, first};
    }
    return FindMark(text, kMark, place.final);
  }

  std::optional<Parsed> Parse(std::string_view text, CallScan* scan, bool final) const override {
    const size_t before = text.starts_with(kMark) ? kMark.size() : text[0] == kSeparator ? 1 : 0;
    const size_t start = scan->start = SkipSpaces(text, std::max(scan->start, before));
    if (start >= text.size() && !final) return std::nullopt;
    if (start >= text.size() || text[start] != '{') return Parsed{std::max<size_t>(start, 1), {}};
    const size_t end = scan->value.End(text, start, "\"");
    if (end == std::string_view::npos) return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
    auto call = CallOf(ParseBoundedJson(text.substr(start, end - start)));
    if (!call.has_value()) return Parsed{end, {}};
    return Parsed{end, {*std::move(call)}};
  }

 private:
  static constexpr char kSeparator = ';';
  static constexpr std::string_view kMark = "<|python_tag|>";
};

class MistralFormat : public ToolFormat {
 public:
  Found Find(std::string_view text, ReplyPlace place) const override { return FindMark(text, kMark, place.final); }

  std::optional<Parsed> Parse(std::string_view text, CallScan* scan, bool final) const override {
    const size_t start = scan->start = SkipSpaces(text, std::max(scan->start, kMark.size()));
    if (start >= text.size()) return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
    if (text[start] != '[' && text[start] != '{') return ParseNamed(text, scan, final);
    const size_t end = scan->value.End(text, start, "\"");
    if (end == std::string_view::npos) return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
    return Parsed{end, CallsOf(ParseBoundedJson(text.substr(start, end - start)))};
  }

 private:
  // All of them, or none.
  static std::vector<ToolCall> CallsOf(const Json& value) {
    std::vector<ToolCall> calls;
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& entry : list) {
      auto call = CallOf(entry);
      if (!call.has_value()) return {};
      calls.push_back(*std::move(call));
    }
    return calls;
  }

  // name[ARGS]{...}
  static std::optional<Parsed> ParseNamed(std::string_view text, CallScan* scan, bool final) {
    scan->searched = std::max(scan->searched, scan->start);
    const size_t brace = scan->FindAny(text, "{\n");
    if (brace == std::string_view::npos || text[brace] == '\n') {
      if (brace == std::string_view::npos && !final) return std::nullopt;
      return Parsed{std::min(brace, text.size()), {}};
    }
    std::string_view name = text.substr(scan->start, brace - scan->start);
    if (name.ends_with(kArguments)) name.remove_suffix(kArguments.size());
    const size_t end = scan->value.End(text, brace, "\"");
    if (end == std::string_view::npos) return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
    const Json arguments = ParseBoundedJson(text.substr(brace, end - brace));
    const bool valid = !name.empty() && name.find_first_of(" []\"") == std::string_view::npos && arguments.is_object();
    if (!valid) return Parsed{end, {}};
    return Parsed{end, {ToolCall{std::string(name), arguments.dump(-1, ' ', false, Json::error_handler_t::replace)}}};
  }

  static constexpr std::string_view kMark = "[TOOL_CALLS]";
  static constexpr std::string_view kArguments = "[ARGS]";
};

}  // namespace

size_t SkipSpaces(std::string_view text, size_t offset) {
  return std::min(text.find_first_not_of(" \n\r\t", offset), text.size());
}

size_t SafePrefix(std::string_view text, std::string_view mark) {
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (text.ends_with(mark.substr(0, size))) return text.size() - size;
  }
  return text.size();
}

size_t BracketScan::End(std::string_view text, size_t start, std::string_view quotes) {
  for (at_ = std::max(at_, start); at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (quote_ != 0) {
      if (c == quote_) quote_ = 0;
      if (c == '\\') ++at_;  // what follows it is not looked at, though it may not have come yet
    } else if (quotes.find(c) != std::string_view::npos) {
      quote_ = c;
    } else if (c == '{' || c == '[' || c == '(') {
      if (depth_ >= kMaxNesting) return std::string_view::npos;
      ++depth_;
    } else if (c == '}' || c == ']' || c == ')') {
      // A bracket that does not match closes what is open: the value is broken, and ends all the same.
      if (depth_ == 1) return at_ + 1;
      --depth_;
    }
  }
  return std::string_view::npos;
}

size_t CallScan::Find(std::string_view text, std::string_view wanted) {
  const size_t at = text.find(wanted, searched);
  searched = std::max(searched, std::min(at, text.size() - std::min(text.size(), wanted.size() - 1)));
  return at;
}

size_t CallScan::FindAny(std::string_view text, std::string_view characters) {
  const size_t at = text.find_first_of(characters, searched);
  searched = std::min(at, text.size());
  return at;
}

std::unique_ptr<const ToolFormat> MakeToolFormat(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kNone:
      return nullptr;
    case ToolSyntax::kHermes:
      return std::make_unique<HermesFormat>();
    case ToolSyntax::kLlamaJson:
      return std::make_unique<LlamaFormat>();
    case ToolSyntax::kMistral:
      return std::make_unique<MistralFormat>();
    case ToolSyntax::kPythonic:
      return MakePythonicFormat();
  }
  return nullptr;
}

}  // namespace quire
