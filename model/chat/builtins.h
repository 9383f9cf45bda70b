#pragma once

#include <string_view>

#include "model/chat/value.h"

// The functions, filters, tests and methods that templates find, and how they are called. All throw TemplateError.
namespace quire::jinja {

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);

// `input | name(arguments)` and `input is name(arguments)`. An unknown name is an error.
Value CallFilter(Interpreter& in, std::string_view name, const Value& input, Arguments arguments);
bool CallTest(Interpreter& in, std::string_view name, const Value& input, Arguments arguments);

// A method of a string, list, tuple or dict bound to its value; nullopt if the type has none of that name.
std::optional<Value> FindMethod(const Value& object, std::string_view name);

// range, dict, namespace, cycler, joiner, lipsum; raise_exception and strftime_now. Undefined for other names.
std::optional<Value> FindGlobal(std::string_view name);

}  // namespace quire::jinja
