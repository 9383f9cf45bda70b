#pragma once

#include <string_view>

#include "model/chat/value.h"

namespace quire::jinja {

// object.name, object[key] and object[start:stop:step], as jinja2's sandbox resolves them: attributes before entries
// for the dot, entries before attributes for brackets; undefined where there is neither; an undefined that says so
// where the sandbox refuses.
Value GetAttribute(Interpreter& in, const Value& object, std::string_view name);
Value GetItem(Interpreter& in, const Value& object, const Value& key);
// Null for a part that was left out.
Value GetSlice(Interpreter& in, const Value& object, const Value* start, const Value* stop, const Value* step);

}  // namespace quire::jinja
