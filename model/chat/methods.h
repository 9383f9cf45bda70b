#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "model/chat/budget.h"
#include "model/chat/value.h"

namespace quire::jinja {

using MethodFn = std::function<Value(Interpreter& in, const Value& self, Arguments& arguments)>;

std::optional<MethodFn> FindStringMethod(std::string_view name);

// text.replace(old, with, count): all of them if count is negative.
std::string Replace(Budget& budget, std::string_view text, std::string_view old, std::string_view with, int64_t count);

// text.format(*positional, **named). `escape`: the text is markup, and what is put in is escaped.
std::string FormatText(Interpreter& in, std::string_view text, const Arguments& arguments, bool escape);

// format(value, spec): Python's format specification for str, int, float and bool; for other types only an empty one.
std::string FormatValue(Budget& budget, const Value& value, std::string_view spec);

// json.dumps as transformers calls it for the filter tojson.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; absent: everything in one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string DumpJson(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace quire::jinja
