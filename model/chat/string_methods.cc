#include <algorithm>

#include "model/chat/arguments.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/methods.h"
#include "model/chat/text.h"

// The methods of str.
namespace quire::jinja {
namespace {

// A result keeps the markup of its text.
Value Like(const Value& self, std::string text) { return Value::String(std::move(text), self.markup()); }

// What is added to markup is escaped.
std::string Added(const Value& self, const Value& text) {
  return self.markup() && !text.markup() ? Escape(text.text()) : text.text();
}

Value StringList(const Value& self, std::vector<std::string> parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (std::string& part : parts) values.push_back(Like(self, std::move(part)));
  return Value::List(std::move(values));
}

Value Map(const Value& self, Arguments& arguments, std::string_view name, std::string (*map)(std::string_view)) {
  const Parameters parameters(name, {}, 0, arguments);
  return Like(self, map(self.text()));
}

Value StripMethod(const Value& self, Arguments& arguments, std::string_view name, bool left, bool right) {
  const Parameters parameters(name, {"/chars"}, 0, arguments);
  const std::string* chars = parameters.IsNoneOrAbsent(0) ? nullptr : &parameters.Text(0);
  return Like(self, std::string(Strip(self.text(), chars, left, right)));
}

Value SplitMethod(Interpreter& in, const Value& self, Arguments& arguments, bool from_right) {
  const Parameters parameters(from_right ? "rsplit" : "split", {"sep", "maxsplit"}, 0, arguments);
  const std::string* separator = parameters.IsNoneOrAbsent(0) ? nullptr : &parameters.Text(0);
  if (separator != nullptr && separator->empty()) Fail("ValueError: empty separator");
  std::vector<std::string> parts = Split(self.text(), separator, parameters.Index(1, -1), from_right);
  in.budget().Elements(static_cast<int64_t>(parts.size()));
  return StringList(self, std::move(parts));
}

Value PartitionMethod(const Value& self, Arguments& arguments, bool from_right) {
  const Parameters parameters(from_right ? "rpartition" : "partition", {"/sep"}, 1, arguments);
  const std::string& separator = parameters.Text(0);
  if (separator.empty()) Fail("ValueError: empty separator");
  const std::string& text = self.text();
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  std::string parts[3];
  if (at == std::string::npos) {
    parts[from_right ? 2 : 0] = text;
  } else {
    parts[0] = text.substr(0, at);
    parts[1] = separator;
    parts[2] = text.substr(at + separator.size());
  }
  return Value::Tuple({Like(self, parts[0]), Like(self, parts[1]), Like(self, parts[2])});
}

// The part of a text that optional positions bound; nullopt if they cross.
struct Window {
  std::string_view text;
  size_t offset = 0;  // bytes before it
};

std::optional<Window> Bound(const Value& self, const Parameters& parameters, size_t first) {
  const int64_t size = self.as<StringObject>().num_chars;
  const auto position = [&](size_t i, int64_t otherwise) {
    if (parameters.IsNoneOrAbsent(i)) return otherwise;
    const int64_t value = parameters.Index(i, otherwise);
    return value < 0 ? std::max<int64_t>(0, value + size) : value;
  };
  const int64_t start = position(first, 0);
  const int64_t end = std::min(position(first + 1, size), size);
  if (start > end) return std::nullopt;
  const std::string_view text = self.text();
  const size_t offset = OffsetOf(text, start);
  return Window{text.substr(offset, OffsetOf(text, end - start, offset) - offset), offset};
}

Value AffixMethod(const Value& self, Arguments& arguments, bool start) {
  const std::string_view name = start ? "startswith" : "endswith";
  const Parameters parameters(name, {"/prefix", "/start", "/end"}, 1, arguments);
  const auto window = Bound(self, parameters, 1);
  const auto matches = [&](const Value& affix) {
    CheckDefined(affix);
    if (!affix.is(Kind::kString))
      Fail(Cat("TypeError: ", name, " first arg must be str or a tuple of str, not ", TypeName(affix)));
    if (!window.has_value()) return false;
    return start ? window->text.starts_with(affix.text()) : window->text.ends_with(affix.text());
  };
  if (!parameters[0].is(Kind::kTuple)) return Value::Bool(matches(parameters[0]));
  const std::vector<Value>& affixes = parameters[0].items();
  return Value::Bool(std::any_of(affixes.begin(), affixes.end(), matches));
}

Value FindMethod(const Value& self, Arguments& arguments, std::string_view name, bool from_right, bool must) {
  const Parameters parameters(name, {"/sub", "/start", "/end"}, 1, arguments);
  const std::string& wanted = parameters.Text(0);
  const auto window = Bound(self, parameters, 1);
  const size_t at = !window.has_value() ? std::string::npos
                    : from_right        ? window->text.rfind(wanted)
                                        : window->text.find(wanted);
  if (at != std::string::npos)
    return Value::Integer(CountChars(std::string_view(self.text()).substr(0, window->offset + at)));
  if (must) Fail("ValueError: substring not found");
  return Value::Integer(-1);
}

Value CountMethod(const Value& self, Arguments& arguments) {
  const Parameters parameters("count", {"/sub", "/start", "/end"}, 1, arguments);
  const std::string& wanted = parameters.Text(0);
  const auto window = Bound(self, parameters, 1);
  return Value::Integer(window.has_value() ? CountOf(window->text, wanted) : 0);
}

Value ReplaceMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("replace", {"/old", "/new", "/count"}, 2, arguments);
  parameters.Text(1);
  return Like(
      self, Replace(in.budget(), self.text(), parameters.Text(0), Added(self, parameters[1]), parameters.Index(2, -1)));
}

Value JoinMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("join", {"/iterable"}, 1, arguments);
  CheckDefined(parameters[0]);
  std::string text;
  bool first = true;
  for (const Value& item : ToList(in.budget(), parameters[0])) {
    if (!item.is(Kind::kString) && !self.markup()) {
      Fail(Cat("TypeError: sequence item: expected str instance, ", TypeName(item), " found"));
    }
    if (!first) in.budget().Append(self.text(), &text);
    first = false;
    const Value piece = item.is(Kind::kString) ? item : Value::String(Str(in.budget(), item));
    in.budget().Append(Added(self, piece), &text);
  }
  return Like(self, std::move(text));
}

Value PadMethod(Interpreter& in, const Value& self, Arguments& arguments, std::string_view name) {
  const Parameters parameters(name, {"/width", "/fillchar"}, 1, arguments);
  const std::string fill =
      parameters.Has(1) ? Added(self, Value::String(parameters.Text(1), parameters[1].markup())) : " ";
  if (CountChars(fill) != 1) Fail("TypeError: The fill character must be exactly one character long");
  const int64_t size = self.as<StringObject>().num_chars;
  const int64_t width = parameters.Index(0, 0);
  if (width <= size) return self;
  const int64_t pad = width - size;
  in.budget().Bytes(std::min(pad, in.budget().limits().max_output_bytes + 1));
  // As CPython: an odd space goes left if the width is odd.
  const int64_t left = name == "ljust" ? 0 : name == "rjust" ? pad : pad / 2 + (pad & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i) text += fill;
  in.budget().Append(self.text(), &text);
  for (int64_t i = left; i < pad; ++i) text += fill;
  return Like(self, std::move(text));
}

Value ZfillMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("zfill", {"/width"}, 1, arguments);
  const int64_t pad = parameters.Index(0, 0) - self.as<StringObject>().num_chars;
  if (pad <= 0) return self;
  in.budget().Bytes(std::min(pad, in.budget().limits().max_output_bytes + 1));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return Like(self, text.substr(0, sign) + std::string(static_cast<size_t>(pad), '0') + text.substr(sign));
}

Value RemoveMethod(const Value& self, Arguments& arguments, bool prefix) {
  const Parameters parameters(prefix ? "removeprefix" : "removesuffix", {"/affix"}, 1, arguments);
  const std::string& affix = parameters.Text(0);
  const std::string& text = self.text();
  if (affix.empty() || !(prefix ? text.starts_with(affix) : text.ends_with(affix))) return self;
  return Like(self, prefix ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

Value ExpandTabsMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("expandtabs", {"tabsize"}, 0, arguments);
  const int64_t tab = parameters.Index(0, 8);
  std::string text;
  int64_t column = 0;
  for (const std::string& c : Chars(self.text())) {
    if (c == "\t") {
      const int64_t pad = tab > 0 ? tab - column % tab : 0;
      in.budget().Bytes(std::min(pad, in.budget().limits().max_output_bytes + 1));
      text.append(static_cast<size_t>(pad), ' ');
      in.budget().Append("", &text);
      column += pad;
    } else {
      text += c;
      column = c == "\n" || c == "\r" ? 0 : column + 1;
    }
  }
  return Like(self, std::move(text));
}

Value FormatMethod(Interpreter& in, const Value& self, Arguments& arguments, bool map) {
  if (map) {
    const Parameters parameters("format_map", {"/mapping"}, 1, arguments);
    CheckDefined(parameters[0]);
    if (!parameters[0].is(Kind::kDict)) Fail("TypeError: format_map() takes a mapping");
    Arguments entries;
    for (const auto& [name, value] : parameters[0].dict().entries) {
      if (name.is(Kind::kString)) entries.named.emplace_back(name.text(), value);
    }
    return Like(self, FormatText(in, self.text(), entries, self.markup()));
  }
  return Like(self, FormatText(in, self.text(), arguments, self.markup()));
}

// bytes and translation tables are no values of templates.
Value UnavailableMethod(Interpreter&, const Value&, Arguments&) { Fail("this method of str is not available"); }

struct Method {
  std::string_view name;
  Value (*call)(Interpreter& in, const Value& self, Arguments& arguments);
};

constexpr Method kMethods[] = {
    {"upper", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "upper", Upper); }},
    {"lower", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "lower", Lower); }},
    {"title", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "title", Title); }},
    {"capitalize", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "capitalize", Capitalize); }},
    {"swapcase", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "swapcase", SwapCase); }},
    {"casefold", [](Interpreter&, const Value& s, Arguments& a) { return Map(s, a, "casefold", CaseFold); }},
    {"strip", [](Interpreter&, const Value& s, Arguments& a) { return StripMethod(s, a, "strip", true, true); }},
    {"lstrip", [](Interpreter&, const Value& s, Arguments& a) { return StripMethod(s, a, "lstrip", true, false); }},
    {"rstrip", [](Interpreter&, const Value& s, Arguments& a) { return StripMethod(s, a, "rstrip", false, true); }},
    {"split", [](Interpreter& in, const Value& s, Arguments& a) { return SplitMethod(in, s, a, false); }},
    {"rsplit", [](Interpreter& in, const Value& s, Arguments& a) { return SplitMethod(in, s, a, true); }},
    {"splitlines",
     [](Interpreter& in, const Value& s, Arguments& a) {
       const Parameters parameters("splitlines", {"keepends"}, 0, a);
       std::vector<std::string> lines = SplitLines(s.text(), parameters.Flag(0, false));
       in.budget().Elements(static_cast<int64_t>(lines.size()));
       return StringList(s, std::move(lines));
     }},
    {"partition", [](Interpreter&, const Value& s, Arguments& a) { return PartitionMethod(s, a, false); }},
    {"rpartition", [](Interpreter&, const Value& s, Arguments& a) { return PartitionMethod(s, a, true); }},
    {"startswith", [](Interpreter&, const Value& s, Arguments& a) { return AffixMethod(s, a, true); }},
    {"endswith", [](Interpreter&, const Value& s, Arguments& a) { return AffixMethod(s, a, false); }},
    {"find", [](Interpreter&, const Value& s, Arguments& a) { return FindMethod(s, a, "find", false, false); }},
    {"rfind", [](Interpreter&, const Value& s, Arguments& a) { return FindMethod(s, a, "rfind", true, false); }},
    {"index", [](Interpreter&, const Value& s, Arguments& a) { return FindMethod(s, a, "index", false, true); }},
    {"rindex", [](Interpreter&, const Value& s, Arguments& a) { return FindMethod(s, a, "rindex", true, true); }},
    {"count", [](Interpreter&, const Value& s, Arguments& a) { return CountMethod(s, a); }},
    {"encode", UnavailableMethod},
    {"translate", UnavailableMethod},
    {"maketrans", UnavailableMethod},
    {"replace", ReplaceMethod},
    {"join", JoinMethod},
    {"center", [](Interpreter& in, const Value& s, Arguments& a) { return PadMethod(in, s, a, "center"); }},
    {"ljust", [](Interpreter& in, const Value& s, Arguments& a) { return PadMethod(in, s, a, "ljust"); }},
    {"rjust", [](Interpreter& in, const Value& s, Arguments& a) { return PadMethod(in, s, a, "rjust"); }},
    {"zfill", ZfillMethod},
    {"removeprefix", [](Interpreter&, const Value& s, Arguments& a) { return RemoveMethod(s, a, true); }},
    {"removesuffix", [](Interpreter&, const Value& s, Arguments& a) { return RemoveMethod(s, a, false); }},
    {"expandtabs", ExpandTabsMethod},
    {"format", [](Interpreter& in, const Value& s, Arguments& a) { return FormatMethod(in, s, a, false); }},
    {"format_map", [](Interpreter& in, const Value& s, Arguments& a) { return FormatMethod(in, s, a, true); }},
};

}  // namespace

std::string Replace(Budget& budget, std::string_view text, std::string_view old, std::string_view with, int64_t count) {
  std::string out;
  if (old.empty()) {
    // Before every character and at the end.
    for (const std::string& c : Chars(text)) {
      if (count-- != 0) {
        budget.Append(with, &out);
      } else {
        count = 0;
      }
      out += c;
    }
    if (count != 0) budget.Append(with, &out);
    return out;
  }
  size_t from = 0;
  for (size_t at = text.find(old); at != std::string_view::npos && count != 0; at = text.find(old, from), --count) {
    budget.Append(text.substr(from, at - from), &out);
    budget.Append(with, &out);
    from = at + old.size();
  }
  budget.Append(text.substr(from), &out);
  return out;
}

std::optional<MethodFn> FindStringMethod(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return MethodFn(method.call);
  }
  if (!IsClass(name, "").has_value()) return std::nullopt;
  return MethodFn([name = std::string(name)](Interpreter&, const Value& self, Arguments& arguments) {
    const Parameters parameters(name, {}, 0, arguments);
    return Value::Bool(*IsClass(name, self.text()));
  });
}

}  // namespace quire::jinja
