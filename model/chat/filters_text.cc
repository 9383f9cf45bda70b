#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "model/chat/arguments.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/filters.h"
#include "model/chat/interpreter.h"
#include "model/chat/methods.h"
#include "model/chat/text.h"

// Filters on text.
namespace quire::jinja {
namespace {

Value CallMethod(Interpreter& in, const Value& input, std::string_view method, Arguments arguments) {
  return in.Call(*FindMethod(SoftText(in, input), method), std::move(arguments));
}

template <const char* method>
Value ByMethod(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters(method, {}, 0, arguments);
  return CallMethod(in, input, method, {});
}
constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";

Value TitleFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("title", {}, 0, arguments);
  const Value soft = SoftText(in, input);
  std::string out;
  bool starts = true;
  std::string rest;
  const auto flush = [&] {
    out += Lower(rest);
    rest.clear();
  };
  // Words begin after white space, - ( { [ and <.
  for (const std::string& c : Chars(soft.text())) {
    size_t offset = 0;
    const char32_t code = DecodeAt(c, &offset);
    const bool separates = IsSpace(code) || std::string_view("-({[<").find(c) != std::string_view::npos;
    if (separates) {
      flush();
      out += c;
    } else if (starts) {
      out += Upper(c);
    } else {
      rest += c;
    }
    starts = separates;
  }
  flush();
  in.budget().Bytes(static_cast<int64_t>(out.size()));
  return Value::String(std::move(out));
}

Value TrimFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("trim", {"chars"}, 0, arguments);
  Arguments chars;
  if (parameters.Has(0)) chars.positional.push_back(parameters[0]);
  return CallMethod(in, input, "strip", std::move(chars));
}

Value CenterFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("center", {"width"}, 0, arguments);
  return CallMethod(in, input, "center", {{parameters.Or(0, Value::Integer(80))}, {}});
}

Value ReplaceFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("replace", {"old", "new", "count"}, 2, arguments);
  Budget& budget = in.budget();
  const int64_t count = parameters.IsNoneOrAbsent(2) ? -1 : parameters.Index(2, -1);
  return Value::String(
      Replace(budget, Str(budget, input), Str(budget, parameters[0]), Str(budget, parameters[1]), count));
}

Value StringFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("string", {}, 0, arguments);
  return SoftText(in, input);
}

Value SafeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("safe", {}, 0, arguments);
  return Value::String(Str(in.budget(), input), true);
}

Value EscapeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("escape", {}, 0, arguments);
  if (input.is(Kind::kString) && input.markup()) return input;
  const std::string text = Str(in.budget(), input);
  in.budget().Bytes(static_cast<int64_t>(text.size()));
  return Value::String(Escape(text), true);
}

Value ForceEscapeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("forceescape", {}, 0, arguments);
  return Value::String(Escape(Str(in.budget(), input)), true);
}

Value FormatFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    Fail("can't handle positional and keyword arguments at the same time");
  }
  const Value text = SoftText(in, input);
  if (arguments.named.empty()) return Arithmetic(in.budget(), BinaryOp::kMod, text, Value::Tuple(arguments.positional));
  auto named = std::make_shared<DictObject>();
  for (const auto& [name, value] : arguments.named) named->Set(Value::String(name), value);
  return Arithmetic(in.budget(), BinaryOp::kMod, text, Value::Dict(std::move(named)));
}

Value IndentFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("indent", {"width", "first", "blank"}, 0, arguments);
  CheckDefined(input);
  if (!input.is(Kind::kString)) Fail(Cat("TypeError: indent() needs a str, not ", TypeName(input)));
  Budget& budget = in.budget();
  std::string indention;
  if (parameters.Has(0) && parameters[0].is(Kind::kString)) {
    const bool escapes = input.markup() && !parameters[0].markup();
    indention = escapes ? parameters[0].text() : parameters[0].text();
  } else {
    const int64_t width = std::max<int64_t>(0, parameters.Index(0, 4));
    budget.Bytes(std::min(width, budget.limits().max_output_bytes + 1));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = parameters.Flag(2, false);
  std::string out;
  if (parameters.Flag(1, false)) budget.Append(indention, &out);
  const std::vector<std::string> lines = SplitLines(input.text() + "\n", false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      budget.Append("\n", &out);
      if (blank || !lines[i].empty()) budget.Append(indention, &out);
    }
    budget.Append(lines[i], &out);
  }
  return Value::String(std::move(out), input.markup());
}

Value TruncateFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("truncate", {"length", "killwords", "end", "leeway"}, 0, arguments);
  const int64_t length = parameters.Index(0, 255);
  const std::string end = parameters.Has(2) ? parameters.Text(2) : "...";
  const int64_t leeway = parameters.IsNoneOrAbsent(3) ? 5 : parameters.Index(3, 5);
  const int64_t end_size = CountChars(end);
  if (length < end_size) Fail(Cat("AssertionError: expected length >= ", end_size, ", got ", length));
  if (leeway < 0) Fail(Cat("AssertionError: expected leeway >= 0, got ", leeway));
  const auto size = Length(input);
  if (!size.has_value()) Fail(Cat("TypeError: object of type '", TypeName(input), "' has no len()"));
  if (*size - leeway <= length) return input;
  if (!input.is(Kind::kString)) Fail(Cat("TypeError: truncate() needs a str, not ", TypeName(input)));
  const std::string& text = input.text();
  in.budget().Bytes(static_cast<int64_t>(text.size()));
  std::string kept = text.substr(0, OffsetOf(text, length - end_size));
  if (!parameters.Flag(1, false)) {
    const size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return Value::String(kept + (input.markup() ? Escape(end) : end), input.markup());
}

Value WordCountFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("wordcount", {}, 0, arguments);
  const Value text = SoftText(in, input);
  int64_t count = 0;
  bool inside = false;
  for (size_t i = 0; i < text.text().size();) {
    const bool word = IsWordChar(DecodeAt(text.text(), &i));
    count += word && !inside;
    inside = word;
  }
  return Value::Integer(count);
}

Value JoinFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("join", {"d", "attribute"}, 0, arguments);
  Budget& budget = in.budget();
  const std::string separator = parameters.Has(0) ? Str(budget, parameters[0]) : "";
  std::optional<AttributePath> path;
  if (!parameters.IsNoneOrAbsent(1)) path.emplace(parameters[1]);
  std::string out;
  const NextFn next = Iterate(input);
  Value item;
  for (bool first = true; next(&item); first = false) {
    budget.Step();
    if (path.has_value()) item = path->Get(in, std::move(item));
    if (!first) budget.Append(separator, &out);
    budget.Append(Str(budget, item), &out);
  }
  return Value::String(std::move(out));
}

Value StripTagsFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("striptags", {}, 0, arguments);
  std::string text = Str(in.budget(), input);
  std::string kept;
  size_t from = 0;
  for (size_t start = text.find('<'); start != std::string::npos; start = text.find('<', from)) {
    const bool comment = text.compare(start, 4, "<!--") == 0;
    const size_t end = comment ? text.find("-->", start + 4) : text.find('>', start);
    if (end == std::string::npos) break;
    kept += text.substr(from, start - from);
    from = end + (comment ? 3 : 1);
  }
  kept += text.substr(from);
  std::string out = absl::StrJoin(Split(kept, nullptr, -1, false), " ");
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&#39;", "'"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"}};
  for (const auto& [entity, meaning] : kEntities) out = Replace(in.budget(), out, entity, meaning, -1);
  return Value::String(std::move(out));
}

std::string Quote(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query)) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return out;
}

Value UrlEncodeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("urlencode", {}, 0, arguments);
  Budget& budget = in.budget();
  if (input.is(Kind::kString) || !IsIterable(input)) return Value::String(Quote(Str(budget, input), false));
  std::string out;
  const Value pairs = input.is(Kind::kDict) ? in.Call(*FindMethod(input, "items"), {}) : input;
  for (const Value& pair : ToList(budget, pairs)) {
    const std::vector<Value> items = ToList(budget, pair);
    if (items.size() != 2) Fail("ValueError: urlencode() needs pairs");
    if (!out.empty()) budget.Append("&", &out);
    budget.Append(Cat(Quote(Str(budget, items[0]), true), "=", Quote(Str(budget, items[1]), true)), &out);
  }
  return Value::String(std::move(out));
}

Value XmlAttrFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("xmlattr", {"autospace"}, 0, arguments);
  CheckDefined(input);
  if (!input.is(Kind::kDict)) Fail("TypeError: xmlattr() needs a dict");
  Budget& budget = in.budget();
  std::string out;
  for (const auto& [key, value] : input.dict().entries) {
    if (value.is(Kind::kNone) || value.is(Kind::kUndefined)) continue;
    if (!key.is(Kind::kString)) Fail("TypeError: xmlattr() needs names that are str");
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      Fail("ValueError: Invalid character in attribute name");
    if (!out.empty()) budget.Append(" ", &out);
    const std::string text = Str(budget, value);
    const bool markup = value.is(Kind::kString) && value.markup();
    budget.Append(Cat(Escape(key.text()), "=\"", markup ? text : Escape(text), "\""), &out);
  }
  return Value::String(parameters.Flag(0, true) && !out.empty() ? " " + out : out);
}

Value ToJsonFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, arguments);
  JsonStyle style;
  style.ensure_ascii = parameters.Flag(0, false);
  style.sort_keys = parameters.Flag(3, false);
  if (!parameters.IsNoneOrAbsent(1)) {
    if (parameters[1].is(Kind::kString)) {
      style.indent = parameters[1].text();
    } else {
      const int64_t width = std::max<int64_t>(0, parameters.Index(1, 0));
      in.budget().Bytes(std::min(width, in.budget().limits().max_output_bytes + 1));
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (!parameters.IsNoneOrAbsent(2)) {
    const std::vector<Value> separators = ToList(in.budget(), parameters[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::kString) || !separators[1].is(Kind::kString)) {
      Fail("TypeError: separators of tojson() must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return Value::String(DumpJson(in.budget(), input, style));
}

constexpr FilterEntry kFilters[] = {{"upper", ByMethod<kUpper>},
                                    {"lower", ByMethod<kLower>},
                                    {"capitalize", ByMethod<kCapitalize>},
                                    {"title", TitleFilter},
                                    {"trim", TrimFilter},
                                    {"center", CenterFilter},
                                    {"replace", ReplaceFilter},
                                    {"string", StringFilter},
                                    {"safe", SafeFilter},
                                    {"e", EscapeFilter},
                                    {"escape", EscapeFilter},
                                    {"forceescape", ForceEscapeFilter},
                                    {"format", FormatFilter},
                                    {"indent", IndentFilter},
                                    {"truncate", TruncateFilter},
                                    {"wordcount", WordCountFilter},
                                    {"join", JoinFilter},
                                    {"striptags", StripTagsFilter},
                                    {"urlencode", UrlEncodeFilter},
                                    {"xmlattr", XmlAttrFilter},
                                    {"tojson", ToJsonFilter}};

}  // namespace

Value SoftText(Interpreter& in, const Value& value) {
  return value.is(Kind::kString) ? value : Value::String(Str(in.budget(), value));
}

std::span<const FilterEntry> TextFilters() { return kFilters; }

}  // namespace quire::jinja
