#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "model/chat/error.h"
#include "model/chat/string_literal.h"
#include "model/chat/text.h"
#include "model/chat/tool_format.h"
#include "nlohmann/json.hpp"

// Calls as a Python list: [f(a=1, b="x"), g()]
namespace quire {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxNesting = 100;
constexpr size_t kMaxMembers = 4096;  // of arguments and dicts, whose names are compared pairwise; as in JSON

// Reads Python calls with literal arguments. Every function returns nullopt at what it does not know.
class CallReader {
 public:
  explicit CallReader(std::string_view text) : text_(text) {}

  std::optional<std::vector<ToolCall>> List() {
    std::vector<ToolCall> calls;
    if (!Take('[')) return std::nullopt;
    while (!Take(']')) {
      if (!calls.empty() && !Take(',')) return std::nullopt;
      if (!calls.empty() && Take(']')) break;
      auto call = Call();
      if (!call.has_value()) return std::nullopt;
      calls.push_back(*std::move(call));
    }
    if (calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  void Space() { at_ = SkipSpaces(text_, at_); }

  bool Take(char c) {
    Space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Names of tools may have dots and dashes.
  std::string Name() {
    Space();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalnum(text_[at_]) || std::string_view("_.-").find(text_[at_]) != std::string_view::npos))
      ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  std::optional<ToolCall> Call() {
    const std::string name = Name();
    if (name.empty() || absl::ascii_isdigit(name[0]) || !Take('(')) return std::nullopt;
    Json arguments = Json::object();
    while (!Take(')')) {
      if (!arguments.empty() && !Take(',')) return std::nullopt;
      if (!arguments.empty() && Take(')')) break;
      const std::string key = Name();
      if (key.empty() || arguments.size() >= kMaxMembers || arguments.contains(key) || !Take('=')) return std::nullopt;
      auto value = Literal(0);
      if (!value.has_value()) return std::nullopt;
      arguments[key] = *std::move(value);
    }
    return ToolCall{name, arguments.dump(-1, ' ', false, Json::error_handler_t::replace)};
  }

  std::optional<Json> Literal(int depth) {
    Space();
    if (at_ >= text_.size() || depth > kMaxNesting) return std::nullopt;
    const char c = text_[at_];
    if (c == '\'' || c == '"') return String();
    if (c == '[' || c == '(') return Sequence(c == '[' ? ']' : ')', depth);
    if (c == '{') return Dict(depth);
    if (absl::ascii_isdigit(c) || c == '-' || c == '+' || c == '.') return Number();
    const std::string name = Name();
    if (name == "True" || name == "true") return Json(true);
    if (name == "False" || name == "false") return Json(false);
    if (name == "None" || name == "null") return Json(nullptr);
    return std::nullopt;
  }

  std::optional<Json> String() {
    const char quote = text_[at_];
    const size_t start = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return std::nullopt;
    const std::string_view body = text_.substr(start, at_++ - start);
    try {
      return Json(jinja::DecodeStringLiteral(body, 0));
    } catch (const jinja::TemplateError&) {
      return std::nullopt;
    }
  }

  std::optional<Json> Number() {
    const size_t start = at_;
    while (at_ < text_.size() &&
           (absl::ascii_isalnum(text_[at_]) || std::string_view("+-._").find(text_[at_]) != std::string_view::npos))
      ++at_;
    const std::string_view digits = text_.substr(start, at_ - start);
    if (const auto integer = jinja::ParseInt(digits, 10); integer.has_value()) {
      const auto value = static_cast<int64_t>(*integer);
      if (value == *integer) return Json(value);
    }
    const auto number = jinja::ParseFloat(digits);
    if (!number.has_value()) return std::nullopt;
    return Json(*number);
  }

  std::optional<Json> Sequence(char close, int depth) {
    Json items = Json::array();
    ++at_;
    bool comma = false;
    while (!Take(close)) {
      if (!items.empty()) {
        if (!Take(',')) return std::nullopt;
        comma = true;
        if (Take(close)) break;
      }
      auto item = Literal(depth + 1);
      if (!item.has_value()) return std::nullopt;
      items.push_back(*std::move(item));
    }
    // One value in parentheses is that value.
    if (close == ')' && items.size() == 1 && !comma) return items[0];
    return items;
  }

  std::optional<Json> Dict(int depth) {
    Json entries = Json::object();
    ++at_;
    bool first = true;
    while (!Take('}')) {
      if (!first && !Take(',')) return std::nullopt;
      if (!first && Take('}')) break;
      first = false;
      const auto key = Literal(depth + 1);
      if (!key.has_value() || !key->is_string() || entries.size() >= kMaxMembers || !Take(':')) return std::nullopt;
      auto value = Literal(depth + 1);
      if (!value.has_value()) return std::nullopt;
      entries[key->get<std::string>()] = *std::move(value);
    }
    return entries;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class PythonicFormat : public ToolFormat {
 public:
  Found Find(std::string_view text, ReplyPlace place) const override {
    if (!place.at_start || place.after_call) return {false, text.size()};
    const size_t start = SkipSpaces(text, 0);
    if (start == text.size()) return {false, start};
    return {text[start] == '[', text[start] == '[' ? start : text.size()};
  }

  std::optional<Parsed> Parse(std::string_view text, CallScan* scan, bool final) const override {
    const size_t end = scan->value.End(text, 0, "\"'");
    if (end == std::string_view::npos) return final ? std::optional<Parsed>(Parsed{text.size(), {}}) : std::nullopt;
    auto calls = CallReader(text.substr(0, end)).List();
    if (!calls.has_value()) return Parsed{end, {}};
    return Parsed{end, *std::move(calls)};
  }
};

}  // namespace

std::unique_ptr<const ToolFormat> MakePythonicFormat() { return std::make_unique<PythonicFormat>(); }

}  // namespace quire
