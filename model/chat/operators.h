#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/ast.h"
#include "model/chat/budget.h"
#include "model/chat/value.h"

// What Python's operators and its built-in functions str, repr, len, iter, bool do with values. All charge the budget
// and throw TemplateError.
namespace quire::jinja {

// Throws what using an undefined value throws.
[[noreturn]] void FailUndefined(const Value& value);
inline void CheckDefined(const Value& value) {
  if (value.is(Kind::kUndefined)) FailUndefined(value);
}

bool Truth(const Value& value);
bool Equal(Budget& budget, const Value& left, const Value& right);
// One of < <= > >= (and ==, !=).
bool Compares(Budget& budget, CompareOp op, const Value& left, const Value& right);
bool Contains(Budget& budget, const Value& container, const Value& item);

Value Arithmetic(Budget& budget, BinaryOp op, const Value& left, const Value& right);
Value Negate(const Value& value);
Value Posit(const Value& value);

// Python's len; nullopt if the type has none.
std::optional<int64_t> Length(const Value& value);

// Calls it again and again for the elements: false at the end.
using NextFn = std::function<bool(Value*)>;
bool IsIterable(const Value& value);
NextFn Iterate(const Value& value);
std::vector<Value> ToList(Budget& budget, const Value& value);
Value MakeIterator(std::string type_name, int32_t depth, NextFn next);

std::string Str(Budget& budget, const Value& value);
std::string Repr(Budget& budget, const Value& value);
std::string ReprText(std::string_view text);

// left % right for a string.
std::string PercentFormat(Budget& budget, std::string_view format, const Value& arguments, bool escape);

// The index that a value means, for subscripts and arguments: int64, clamped if `clamp`. A TypeError if it is no
// integer.
int64_t IndexOf(const Value& value, std::string_view what);

}  // namespace quire::jinja
