#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "model/chat/value.h"

// How the filters are spread over files: each gives its table.
namespace quire::jinja {

struct FilterEntry {
  std::string_view name;
  // `arguments` are those after the input.
  Value (*call)(Interpreter& in, const Value& input, Arguments& arguments);
};

std::span<const FilterEntry> TextFilters();
std::span<const FilterEntry> NumberFilters();
std::span<const FilterEntry> SequenceFilters();
std::span<const FilterEntry> SelectionFilters();

// jinja2's attribute paths: "a.b.0", an integer, or none for the value itself.
class AttributePath {
 public:
  explicit AttributePath(const Value& path);
  // `otherwise` stands for what is undefined on the way; null for none.
  Value Get(Interpreter& in, Value item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// Text as jinja2's soft_str makes it: a string as it is, anything else by str.
Value SoftText(Interpreter& in, const Value& value);

}  // namespace quire::jinja
