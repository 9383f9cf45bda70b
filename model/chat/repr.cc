#include "absl/strings/str_format.h"
#include "model/chat/cat.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"
#include "model/tokenizer/utf8.h"

// str and repr.
namespace quire::jinja {
namespace {

void AppendRepr(Budget& budget, const Value& value, std::string* out);

void AppendItems(Budget& budget, const std::vector<Value>& items, std::string* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) budget.Append(", ", out);
    AppendRepr(budget, items[i], out);
  }
}

void AppendEntries(Budget& budget, const DictObject& dict, std::string* out) {
  budget.Append("{", out);
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) budget.Append(", ", out);
    first = false;
    AppendRepr(budget, key, out);
    budget.Append(": ", out);
    AppendRepr(budget, value, out);
  }
  budget.Append("}", out);
}

void AppendView(Budget& budget, const Value& value, std::string* out) {
  budget.Append(Cat(TypeName(value), "(["), out);
  AppendItems(budget, ToList(budget, value), out);
  budget.Append("])", out);
}

std::string RangeText(const RangeObject& range) {
  return range.step == 1 ? Cat("range(", range.start, ", ", range.stop, ")")
                         : Cat("range(", range.start, ", ", range.stop, ", ", range.step, ")");
}

void AppendRepr(Budget& budget, const Value& value, std::string* out) {
  const Budget::Level level(budget);
  switch (value.kind()) {
    case Kind::kUndefined:
      return budget.Append("Undefined", out);
    case Kind::kNone:
      return budget.Append("None", out);
    case Kind::kBool:
      return budget.Append(value.boolean() ? "True" : "False", out);
    case Kind::kInt:
      return budget.Append(IntText(value.integer()), out);
    case Kind::kFloat:
      return budget.Append(FloatText(value.floating()), out);
    case Kind::kString:
      budget.Bytes(static_cast<int64_t>(value.text().size()));
      return budget.Append(value.markup() ? Cat("Markup(", ReprText(value.text()), ")") : ReprText(value.text()), out);
    case Kind::kList:
      budget.Append("[", out);
      AppendItems(budget, value.items(), out);
      return budget.Append("]", out);
    case Kind::kTuple:
      budget.Append("(", out);
      AppendItems(budget, value.items(), out);
      return budget.Append(value.items().size() == 1 ? ",)" : ")", out);
    case Kind::kDict:
      return AppendEntries(budget, value.dict(), out);
    case Kind::kView:
      return AppendView(budget, value, out);
    case Kind::kRange:
      return budget.Append(RangeText(value.as<RangeObject>()), out);
    case Kind::kNamespace:
      budget.Append("<Namespace ", out);
      AppendEntries(budget, value.as<NamespaceObject>().attributes, out);
      return budget.Append(">", out);
    case Kind::kFunction: {
      const auto& function = value.as<FunctionObject>();
      if (!function.is_macro) return budget.Append(Cat("<function ", function.name, ">"), out);
      return budget.Append(Cat("<Macro ", function.name.empty() ? "anonymous" : ReprText(function.name), ">"), out);
    }
    default:
      return budget.Append(Cat("<", TypeName(value), " object>"), out);
  }
}

}  // namespace

std::string ReprText(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const char32_t c = DecodeAt(text, &i);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      utf8::Append(c, &out);
    } else if (c <= 0xFF) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint32_t>(c));
    } else if (c <= 0xFFFF) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<uint32_t>(c));
    }
  }
  out += quote;
  return out;
}

std::string Str(Budget& budget, const Value& value) {
  if (value.is(Kind::kUndefined)) return "";
  if (value.is(Kind::kString)) {
    budget.Bytes(static_cast<int64_t>(value.text().size()));
    return value.text();
  }
  return Repr(budget, value);
}

std::string Repr(Budget& budget, const Value& value) {
  std::string out;
  AppendRepr(budget, value, &out);
  return out;
}

}  // namespace quire::jinja
