#include <algorithm>

#include "absl/strings/ascii.h"
#include "model/chat/attributes.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/methods.h"
#include "model/chat/text.h"

// str.format, as string.Formatter does it for the sandbox.
namespace quire::jinja {
namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class TextFormatter {
 public:
  TextFormatter(Interpreter& in, const Arguments& arguments, bool escape)
      : in_(in), arguments_(arguments), escape_(escape) {}

  // `depth`: how many levels of fields within fields are left.
  std::string Format(std::string_view text, int depth) {
    if (depth < 0) Fail("ValueError: Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        in_.budget().Append(text.substr(at, 1), &out);
        continue;
      }
      if (at + 1 < text.size() && text[at + 1] == c) {
        in_.budget().Append(text.substr(at, 1), &out);
        ++at;
        continue;
      }
      if (c == '}') Fail("ValueError: Single '}' encountered in format string");
      const size_t end = FieldEnd(text, at);
      in_.budget().Append(Field(text.substr(at + 1, end - at - 1), depth), &out);
      at = end;
    }
    return out;
  }

 private:
  // Offset of the brace that closes the field which starts at `start`.
  static size_t FieldEnd(std::string_view text, size_t start) {
    int depth = 0;
    for (size_t at = start; at < text.size(); ++at) {
      if (text[at] == '[' && depth == 1) {
        // A key in brackets can hold anything.
        const size_t close = text.find(']', at);
        if (close == std::string_view::npos) break;
        at = close;
      } else if (text[at] == '{') {
        ++depth;
      } else if (text[at] == '}' && --depth == 0) {
        return at;
      } else if (text[at] == ':' && depth == 1) {
        return SpecEnd(text, at);
      }
    }
    Fail("ValueError: expected '}' before end of string");
  }

  static size_t SpecEnd(std::string_view text, size_t at) {
    for (int depth = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++depth;
      if (text[at] == '}' && --depth == 0) return at;
    }
    Fail("ValueError: expected '}' before end of string");
  }

  std::string Field(std::string_view field, int depth) {
    size_t name_end = 0;
    bool in_key = false;
    while (name_end < field.size() && (in_key || (field[name_end] != ':' && field[name_end] != '!'))) {
      if (field[name_end] == '[') in_key = true;
      if (field[name_end] == ']') in_key = false;
      if (!in_key && (field[name_end] == '{')) Fail("ValueError: unexpected '{' in field name");
      ++name_end;
    }
    const std::string_view name = field.substr(0, name_end);
    char conversion = '\0';
    size_t at = name_end;
    if (at < field.size() && field[at] == '!') {
      if (at + 1 >= field.size()) Fail("ValueError: end of string while looking for conversion specifier");
      conversion = field[at + 1];
      at += 2;
      if (at < field.size() && field[at] != ':') Fail("ValueError: expected ':' after conversion specifier");
    }
    const std::string_view spec = at < field.size() ? field.substr(at + 1) : std::string_view();
    Value value = Resolve(name);
    const std::string spec_text = Format(spec, depth - 1);
    value = Convert(std::move(value), conversion);
    return Show(value, spec_text);
  }

  Value Convert(Value value, char conversion) {
    switch (conversion) {
      case '\0':
        return value;
      case 's':
        return Value::String(Str(in_.budget(), value));
      case 'r':
        return Value::String(Repr(in_.budget(), value));
      case 'a':
        return Value::String(PercentFormat(in_.budget(), "%a", Value::Tuple({value}), false));
      default:
        Fail(Cat("ValueError: Unknown conversion specifier ", std::string(1, conversion)));
    }
  }

  std::string Show(const Value& value, const std::string& spec) {
    if (!escape_) return FormatValue(in_.budget(), value, spec);
    if (!value.is(Kind::kString) || !value.markup()) return Escape(FormatValue(in_.budget(), value, spec));
    if (!spec.empty()) Fail("ValueError: Unsupported format specification for Markup.");
    return value.text();
  }

  // name, name.attribute, name[key], ...
  Value Resolve(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, first_end));
    for (size_t at = first_end; at < name.size();) {
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (end == at + 1) Fail("ValueError: Empty attribute in format string");
        value = GetAttribute(in_, value, name.substr(at + 1, end - at - 1));
        at = end;
      } else if (name[at] == '[') {
        const size_t close = name.find(']', at);
        if (close == std::string_view::npos) Fail("ValueError: Missing ']' in format string");
        if (close == at + 1) Fail("ValueError: Empty attribute in format string");
        const std::string_view key = name.substr(at + 1, close - at - 1);
        value = GetItem(in_, value, IsDigits(key) ? Value::Integer(Number(key)) : Value::String(std::string(key)));
        at = close + 1;
      } else {
        Fail("ValueError: Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static Int Number(std::string_view digits) {
    const auto value = ParseDigits(digits, 10);
    if (!value.has_value()) Fail("ValueError: Too many decimal digits in format string");
    return *value;
  }

  Value First(std::string_view name) {
    Int place = 0;
    if (name.empty()) {
      if (numbering_ == Numbering::kManual)
        Fail("ValueError: cannot switch from manual field specification to automatic field numbering");
      numbering_ = Numbering::kAutomatic;
      place = next_++;
    } else if (IsDigits(name)) {
      if (numbering_ == Numbering::kAutomatic)
        Fail("ValueError: cannot switch from manual field specification to automatic field numbering");
      numbering_ = Numbering::kManual;
      place = Number(name);
    } else {
      for (const auto& [other, value] : arguments_.named) {
        if (other == name) return value;
      }
      Fail(Cat("KeyError: '", name, "'"));
    }
    if (place >= static_cast<Int>(arguments_.positional.size())) {
      Fail("IndexError: Replacement index out of range for positional args tuple");
    }
    return arguments_.positional[static_cast<size_t>(place)];
  }

  enum class Numbering : uint8_t { kOpen, kAutomatic, kManual };

  Interpreter& in_;
  const Arguments& arguments_;
  const bool escape_;
  Numbering numbering_ = Numbering::kOpen;
  int64_t next_ = 0;
};

}  // namespace

std::string FormatText(Interpreter& in, std::string_view text, const Arguments& arguments, bool escape) {
  return TextFormatter(in, arguments, escape).Format(text, 2);
}

}  // namespace quire::jinja
