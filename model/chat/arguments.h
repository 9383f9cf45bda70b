#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/value.h"

namespace quire::jinja {

// The arguments of a call to a built-in function, put in the places of its parameters as Python does. Throws a
// TypeError's text naming the function for too many, unknown, doubled or missing ones.
class Parameters {
 public:
  // The first `required` of `names` must be given. A name that starts with '/' cannot be given by keyword.
  Parameters(std::string_view function, std::initializer_list<std::string_view> names, size_t required,
             Arguments& arguments);

  bool Has(size_t i) const { return values_[i].has_value(); }
  bool IsNoneOrAbsent(size_t i) const { return !Has(i) || values_[i]->is(Kind::kNone); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value Or(size_t i, Value otherwise) const { return Has(i) ? *values_[i] : std::move(otherwise); }

  // Typed: a TypeError for another type.
  int64_t Index(size_t i, int64_t otherwise) const;
  bool Flag(size_t i, bool otherwise) const;  // any value's truth
  const std::string& Text(size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace quire::jinja
