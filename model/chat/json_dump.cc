#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/methods.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

namespace quire::jinja {
namespace {

class Dumper {
 public:
  Dumper(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void Dump(const Value& value) {
    const Budget::Level level(budget_);
    switch (value.kind()) {
      case Kind::kNone:
        return Put("null");
      case Kind::kBool:
        return Put(value.boolean() ? "true" : "false");
      case Kind::kInt:
        return Put(IntText(value.integer()));
      case Kind::kFloat:
        return Put(Number(value.floating()));
      case Kind::kString:
        return String(value.text());
      case Kind::kList:
      case Kind::kTuple:
        return Array(value.items());
      case Kind::kDict:
        return Object(value.dict());
      default:
        Fail(Cat("TypeError: Object of type ", TypeName(value), " is not JSON serializable"));
    }
  }

  std::string Take() { return std::move(out_); }

 private:
  void Put(std::string_view text) { budget_.Append(text, &out_); }

  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  void String(std::string_view text) {
    std::string out = "\"";
    for (size_t i = 0; i < text.size();) {
      const size_t start = i;
      const char32_t c = DecodeAt(text, &i);
      constexpr std::string_view kNamed = "\"\\\n\r\t\f\b";
      constexpr std::string_view kNames = "\"\\nrtfb";
      if (const size_t name = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
          name != std::string_view::npos) {
        out += '\\';
        out += kNames[name];
      } else if (c < 0x20) {
        absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
      } else if (c < 0x7F || !style_.ensure_ascii) {
        out.append(text.substr(start, i - start));
      } else if (c == 0x7F) {
        out += '\x7F';
      } else if (c <= 0xFFFF) {
        absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
      } else {
        const auto rest = static_cast<uint32_t>(c) - 0x10000;
        absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
      }
    }
    out += '"';
    Put(out);
  }

  void NewLine() {
    if (!style_.indent.has_value()) return;
    Put("\n");
    for (int64_t i = 0; i < level_; ++i) Put(*style_.indent);
  }

  void Array(const std::vector<Value>& items) {
    if (items.empty()) return Put("[]");
    Put("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) Put(style_.item_separator);
      NewLine();
      Dump(items[i]);
    }
    --level_;
    NewLine();
    Put("]");
  }

  static std::string Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kInt:
        return IntText(key.integer());
      case Kind::kFloat:
        return Number(key.floating());
      case Kind::kBool:
        return key.boolean() ? "true" : "false";
      case Kind::kNone:
        return "null";
      default:
        Fail(Cat("TypeError: keys must be str, int, float, bool or None, not ", TypeName(key)));
    }
  }

  void Object(const DictObject& dict) {
    if (dict.entries.empty()) return Put("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto* left, const auto* right) {
        return Compares(budget_, CompareOp::kLt, left->first, right->first);
      });
    }
    Put("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) Put(style_.item_separator);
      NewLine();
      String(Key(entries[i]->first));
      Put(style_.key_separator);
      Dump(entries[i]->second);
    }
    --level_;
    NewLine();
    Put("}");
  }

  Budget& budget_;
  const JsonStyle& style_;
  int64_t level_ = 0;
  std::string out_;
};

}  // namespace

std::string DumpJson(Budget& budget, const Value& value, const JsonStyle& style) {
  Dumper dumper(budget, style);
  dumper.Dump(value);
  return dumper.Take();
}

}  // namespace quire::jinja
