#include "model/chat/attributes.h"

#include <algorithm>

#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/operators.h"
#include "model/chat/text.h"

namespace quire::jinja {
namespace {

Value Missing(const Value& object, std::string_view name) {
  return Value::Undefined(object.is(Kind::kNone)
                              ? Cat("'None' has no attribute '", name, "'")
                              : Cat("'", TypeName(object), " object' has no attribute '", name, "'"));
}

Value Unsafe(const Value& object, std::string_view name) {
  return Value::Undefined(Cat("access to attribute '", name, "' of '", TypeName(object), "' object is unsafe."), true);
}

// What the immutable sandbox refuses because it would change the value.
bool Changes(const Value& object, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto names = [name](const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  return (object.is(Kind::kList) && names(kList)) || (object.is(Kind::kDict) && names(kDict));
}

// Names with underscores that Python gives every object: reading one yields an undefined that says it is unsafe, where
// other names are looked for among the entries.
bool IsUnsafeName(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "__class__",    "__doc__",     "__init__",         "__dict__",          "__module__",       "__eq__",
      "__hash__",     "__str__",     "__repr__",         "__new__",           "__ne__",           "__lt__",
      "__le__",       "__gt__",      "__ge__",           "__dir__",           "__format__",       "__reduce__",
      "__sizeof__",   "__setattr__", "__getattribute__", "__init_subclass__", "__subclasshook__", "__delattr__",
      "__reduce_ex__"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value StringList(const std::vector<std::string>& items) {
  std::vector<Value> values;
  for (const std::string& item : items) values.push_back(Value::String(item));
  return Value::Tuple(std::move(values));
}

std::optional<Value> MacroAttribute(const FunctionObject& macro, std::string_view name) {
  if (name == "name") return macro.name.empty() ? Value::None() : Value::String(macro.name);
  if (name == "arguments") return StringList(macro.parameters);
  if (name == "catch_kwargs") return Value::Bool(macro.catch_kwargs);
  if (name == "catch_varargs") return Value::Bool(macro.catch_varargs);
  if (name == "caller") return Value::Bool(macro.accesses_caller);
  return std::nullopt;
}

Value Function(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  auto function = std::make_shared<FunctionObject>();
  function->name = std::move(name);
  function->call = std::move(call);
  return Value::Of(Kind::kFunction, std::move(function));
}

Value LoopMethod(const Value& loop, std::string name) {
  const bool cycle = name == "cycle";
  return Function(std::move(name), [loop, cycle](Interpreter& in, Arguments& arguments) {
    auto& state = loop.as<LoopObject>();
    if (!arguments.named.empty()) Fail("TypeError: the method of the loop takes no keyword arguments");
    if (cycle) {
      if (arguments.positional.empty()) Fail("TypeError: no items for cycling given");
      return arguments.positional[static_cast<size_t>(state.index0) % arguments.positional.size()];
    }
    Value now = Value::Tuple(arguments.positional);
    if (state.changed.has_value() && Equal(in.budget(), *state.changed, now)) return Value::Bool(false);
    state.changed = std::move(now);
    return Value::Bool(true);
  });
}

std::optional<Value> LoopAttribute(Interpreter& in, const Value& object, std::string_view name) {
  auto& loop = object.as<LoopObject>();
  const auto integer = [](int64_t value) { return Value::Integer(value); };
  if (name == "index") return integer(loop.index0 + 1);
  if (name == "index0") return integer(loop.index0);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.IsLast());
  if (name == "length") return integer(loop.Length(in.budget()));
  if (name == "revindex") return integer(loop.Length(in.budget()) - loop.index0);
  if (name == "revindex0") return integer(loop.Length(in.budget()) - loop.index0 - 1);
  if (name == "depth") return integer(loop.depth0 + 1);
  if (name == "depth0") return integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? Value::Undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.IsLast() ? Value::Undefined("there is no next item") : *loop.after;
  if (name == "cycle" || name == "changed") return LoopMethod(object, std::string(name));
  return std::nullopt;
}

std::optional<Value> CyclerAttribute(const Value& object, std::string_view name) {
  auto& cycler = object.as<CyclerObject>();
  if (name == "current") return cycler.items[cycler.position];
  if (name == "pos") return Value::Integer(static_cast<int64_t>(cycler.position));
  if (name == "items") return Value::Tuple(cycler.items);
  if (name != "next" && name != "reset") return std::nullopt;
  return Function(std::string(name), [object, next = name == "next"](Interpreter&, Arguments&) {
    auto& state = object.as<CyclerObject>();
    if (!next) {
      state.position = 0;
      return Value::None();
    }
    const Value item = state.items[state.position];
    state.position = (state.position + 1) % state.items.size();
    return item;
  });
}

std::optional<Value> NumberAttribute(const Value& object, std::string_view name) {
  if (name == "real") return object.is(Kind::kBool) ? Value::Integer(object.integer()) : object;
  if (name == "imag") return object.is(Kind::kFloat) ? Value::Float(0) : Value::Integer(0);
  if (name == "numerator" && object.is_integral()) return Value::Integer(object.integer());
  if (name == "denominator" && object.is_integral()) return Value::Integer(1);
  return std::nullopt;
}

// Python's getattr, but for what the sandbox refuses.
std::optional<Value> FindAttribute(Interpreter& in, const Value& object, std::string_view name) {
  CheckDefined(object);
  switch (object.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return NumberAttribute(object, name);
    case Kind::kTuple:
      if (object.as<SequenceObject>().group && name == "grouper") return object.items()[0];
      if (object.as<SequenceObject>().group && name == "list") return object.items()[1];
      return FindMethod(object, name);
    case Kind::kString:
    case Kind::kList:
    case Kind::kDict:
      return FindMethod(object, name);
    case Kind::kRange: {
      const auto& range = object.as<RangeObject>();
      if (name == "start") return Value::Integer(range.start);
      if (name == "stop") return Value::Integer(range.stop);
      if (name == "step") return Value::Integer(range.step);
      return std::nullopt;
    }
    case Kind::kNamespace: {
      const Value* value = object.as<NamespaceObject>().attributes.Find(name);
      return value == nullptr ? std::nullopt : std::optional<Value>(*value);
    }
    case Kind::kFunction:
      return object.as<FunctionObject>().is_macro ? MacroAttribute(object.as<FunctionObject>(), name) : std::nullopt;
    case Kind::kLoop:
      return LoopAttribute(in, object, name);
    case Kind::kCycler:
      return CyclerAttribute(object, name);
    case Kind::kJoiner:
      if (name == "sep") return object.as<JoinerObject>().separator;
      if (name == "used") return Value::Bool(object.as<JoinerObject>().used);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

// The attribute as the sandbox gives it; nullopt if the object has none of that name.
std::optional<Value> SandboxedAttribute(Interpreter& in, const Value& object, std::string_view name) {
  CheckDefined(object);
  if (!object.is(Kind::kNamespace) && (IsUnsafeName(name) || Changes(object, name))) return Unsafe(object, name);
  auto value = FindAttribute(in, object, name);
  if (value.has_value() && name.starts_with("_")) return Unsafe(object, name);
  return value;
}

// Python's object[index] for sequences; nullopt where it raises TypeError or LookupError.
std::optional<Value> ItemAt(const Value& object, const Value& key) {
  if (!key.is_integral()) return std::nullopt;
  const int64_t size = *Length(object);
  const Int wanted = key.integer();
  const Int index = wanted < 0 ? wanted + size : wanted;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<int64_t>(index);
  if (object.is_sequence()) return object.items()[static_cast<size_t>(at)];
  if (object.is(Kind::kRange)) {
    const auto& range = object.as<RangeObject>();
    return Value::Integer(Int{range.start} + Int{range.step} * at);
  }
  const std::string& text = object.text();
  const bool ascii = static_cast<int64_t>(text.size()) == size;
  const size_t start = ascii ? static_cast<size_t>(at) : OffsetOf(text, at);
  return Value::String(text.substr(start, OffsetOf(text, 1, start) - start), object.markup());
}

std::optional<Value> Entry(Interpreter& in, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
      const Value* value = object.dict().Find(key);
      return value == nullptr ? std::nullopt : std::optional<Value>(*value);
    }
    case Kind::kString:
      in.budget().Bytes(static_cast<int64_t>(object.text().size()));
      return ItemAt(object, key);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange:
      return ItemAt(object, key);
    default:
      return std::nullopt;
  }
}

// Indices that a slice selects: start, then every step, count of them.
struct Selection {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

Selection Select(int64_t size, const Value* start, const Value* stop, const Value* step) {
  Selection out;
  if (step != nullptr) out.step = IndexOf(*step, "slice indices");
  if (out.step == 0) Fail("ValueError: slice step cannot be zero");
  const bool forward = out.step > 0;
  const auto bound = [size, forward](const Value* value, int64_t otherwise) {
    if (value == nullptr) return otherwise;
    int64_t index = IndexOf(*value, "slice indices");
    if (index < 0) index += size;
    return forward ? std::clamp<int64_t>(index, 0, size) : std::clamp<int64_t>(index, -1, size - 1);
  };
  out.start = bound(start, forward ? 0 : size - 1);
  const int64_t end = bound(stop, forward ? size : -1);
  // Differences of the two are at most size, so nothing overflows.
  if (forward && end > out.start) out.count = (end - out.start - 1) / out.step + 1;
  if (!forward && end < out.start) out.count = out.step < -size ? 1 : (out.start - end - 1) / -out.step + 1;
  return out;
}

Value SliceText(const Value& object, const Selection& selection) {
  const std::string& text = object.text();
  if (selection.step == 1) {
    const size_t start = OffsetOf(text, selection.start);
    return Value::String(text.substr(start, OffsetOf(text, selection.count, start) - start), object.markup());
  }
  const std::vector<std::string> chars = Chars(text);
  std::string out;
  for (int64_t i = 0; i < selection.count; ++i) out += chars[static_cast<size_t>(selection.start + i * selection.step)];
  return Value::String(std::move(out), object.markup());
}

Value SliceRange(const RangeObject& range, const Selection& selection) {
  auto out = std::make_shared<RangeObject>();
  out->start = range.start + selection.start * range.step;
  out->step = selection.count > 1 ? range.step * selection.step : range.step;
  out->size = selection.count;
  out->stop = out->start + out->step * selection.count;
  return Value::Of(Kind::kRange, std::move(out));
}

}  // namespace

Value GetAttribute(Interpreter& in, const Value& object, std::string_view name) {
  if (auto value = SandboxedAttribute(in, object, name); value.has_value()) return *std::move(value);
  if (object.is(Kind::kDict)) {
    if (const Value* value = object.dict().Find(name); value != nullptr) return *value;
  }
  return Missing(object, name);
}

Value GetItem(Interpreter& in, const Value& object, const Value& key) {
  CheckDefined(object);
  if (auto value = Entry(in, object, key); value.has_value()) return *std::move(value);
  if (key.is(Kind::kString)) {
    if (auto value = SandboxedAttribute(in, object, key.text()); value.has_value()) return *std::move(value);
    return Missing(object, key.text());
  }
  if (key.is_integral()) {
    return Value::Undefined(Cat("'", TypeName(object), " object' has no element ", IntText(key.integer())));
  }
  return Value::Undefined(Cat("'", TypeName(object), " object' has no element of type ", TypeName(key)));
}

Value GetSlice(Interpreter& in, const Value& object, const Value* start, const Value* stop, const Value* step) {
  CheckDefined(object);
  if (!object.is(Kind::kString) && !object.is_sequence() && !object.is(Kind::kRange)) {
    Fail(Cat("TypeError: '", TypeName(object), "' object is not subscriptable by a slice"));
  }
  const Selection selection = Select(*Length(object), start, stop, step);
  if (object.is(Kind::kString)) {
    in.budget().Bytes(static_cast<int64_t>(object.text().size()));
    return SliceText(object, selection);
  }
  if (object.is(Kind::kRange)) return SliceRange(object.as<RangeObject>(), selection);
  in.budget().Elements(selection.count);
  std::vector<Value> items;
  for (int64_t i = 0; i < selection.count; ++i) {
    items.push_back(object.items()[static_cast<size_t>(selection.start + i * selection.step)]);
  }
  return object.is(Kind::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace quire::jinja
