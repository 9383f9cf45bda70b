#include <algorithm>

#include "model/chat/arguments.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/text.h"

// The tests behind `is`.
namespace quire::jinja {
namespace {

using PlainCall = bool (*)(Interpreter& in, const Value& value);
using BinaryCall = bool (*)(Interpreter& in, const Value& value, const Value& other);

Value Modulo(Interpreter& in, const Value& value, Int divisor) {
  return Arithmetic(in.budget(), BinaryOp::kMod, value, Value::Integer(divisor));
}

bool IsSequence(const Value& value) { return Length(value).has_value() && !value.is(Kind::kView); }

bool IsCallable(const Value& value) {
  return value.is(Kind::kFunction) || value.is(Kind::kJoiner) || value.is(Kind::kLoop) || value.is(Kind::kUndefined);
}

// Python's `is`: CPython makes one object of small ints and of equal constants.
bool IsSame(Interpreter& in, const Value& value, const Value& other) {
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::kNone)) return true;
  if (value.is(Kind::kBool) || value.is(Kind::kInt) || value.is(Kind::kString)) return Equal(in.budget(), value, other);
  if (value.is(Kind::kTuple) && value.items().empty() && other.items().empty()) return true;
  return value.address() != nullptr && value.address() == other.address();
}

struct PlainTest {
  std::string_view name;
  PlainCall call;
};

constexpr PlainTest kPlain[] = {
    {"defined", [](Interpreter&, const Value& v) { return !v.is(Kind::kUndefined); }},
    {"undefined", [](Interpreter&, const Value& v) { return v.is(Kind::kUndefined); }},
    {"none", [](Interpreter&, const Value& v) { return v.is(Kind::kNone); }},
    {"boolean", [](Interpreter&, const Value& v) { return v.is(Kind::kBool); }},
    {"true", [](Interpreter&, const Value& v) { return v.is(Kind::kBool) && v.boolean(); }},
    {"false", [](Interpreter&, const Value& v) { return v.is(Kind::kBool) && !v.boolean(); }},
    {"integer", [](Interpreter&, const Value& v) { return v.is(Kind::kInt); }},
    {"float", [](Interpreter&, const Value& v) { return v.is(Kind::kFloat); }},
    {"number", [](Interpreter&, const Value& v) { return v.is_number(); }},
    {"string", [](Interpreter&, const Value& v) { return v.is(Kind::kString); }},
    {"mapping", [](Interpreter&, const Value& v) { return v.is(Kind::kDict); }},
    {"sequence", [](Interpreter&, const Value& v) { return IsSequence(v); }},
    {"iterable", [](Interpreter&, const Value& v) { return IsIterable(v) || v.is(Kind::kLoop); }},
    {"callable", [](Interpreter&, const Value& v) { return IsCallable(v); }},
    {"escaped", [](Interpreter&, const Value& v) { return v.is(Kind::kString) && v.markup(); }},
    {"lower", [](Interpreter& in, const Value& v) { return *IsClass("islower", Str(in.budget(), v)); }},
    {"upper", [](Interpreter& in, const Value& v) { return *IsClass("isupper", Str(in.budget(), v)); }},
    {"odd", [](Interpreter& in, const Value& v) { return Equal(in.budget(), Modulo(in, v, 2), Value::Integer(1)); }},
    {"even", [](Interpreter& in, const Value& v) { return Equal(in.budget(), Modulo(in, v, 2), Value::Integer(0)); }},
    {"filter",
     [](Interpreter&, const Value& v) { return !HashKey(v).empty() && v.is(Kind::kString) && IsFilter(v.text()); }},
    {"test",
     [](Interpreter&, const Value& v) { return !HashKey(v).empty() && v.is(Kind::kString) && IsTest(v.text()); }},
};

template <CompareOp op>
bool CompareTest(Interpreter& in, const Value& value, const Value& other) {
  return Compares(in.budget(), op, value, other);
}

struct BinaryTest {
  std::string_view name;
  BinaryCall call;
};

constexpr BinaryTest kBinary[] = {
    {"eq", CompareTest<CompareOp::kEq>},
    {"==", CompareTest<CompareOp::kEq>},
    {"equalto", CompareTest<CompareOp::kEq>},
    {"ne", CompareTest<CompareOp::kNe>},
    {"!=", CompareTest<CompareOp::kNe>},
    {"lt", CompareTest<CompareOp::kLt>},
    {"<", CompareTest<CompareOp::kLt>},
    {"lessthan", CompareTest<CompareOp::kLt>},
    {"le", CompareTest<CompareOp::kLe>},
    {"<=", CompareTest<CompareOp::kLe>},
    {"gt", CompareTest<CompareOp::kGt>},
    {">", CompareTest<CompareOp::kGt>},
    {"greaterthan", CompareTest<CompareOp::kGt>},
    {"ge", CompareTest<CompareOp::kGe>},
    {">=", CompareTest<CompareOp::kGe>},
    {"in", [](Interpreter& in, const Value& v, const Value& o) { return Contains(in.budget(), o, v); }},
    {"sameas", IsSame},
    {"divisibleby",
     [](Interpreter& in, const Value& v, const Value& o) {
       return Equal(in.budget(), Arithmetic(in.budget(), BinaryOp::kMod, v, o), Value::Integer(0));
     }},
};

template <typename Entry, size_t size>
const Entry* Find(const Entry (&table)[size], std::string_view name) {
  const Entry* entry =
      std::find_if(std::begin(table), std::end(table), [name](const Entry& e) { return e.name == name; });
  return entry == std::end(table) ? nullptr : entry;
}

}  // namespace

bool IsTest(std::string_view name) { return Find(kPlain, name) != nullptr || Find(kBinary, name) != nullptr; }

bool CallTest(Interpreter& in, std::string_view name, const Value& input, Arguments arguments) {
  const Budget::Level level(in.budget());
  in.budget().Step();
  if (const PlainTest* test = Find(kPlain, name); test != nullptr) {
    const Parameters parameters(name, {}, 0, arguments);
    return test->call(in, input);
  }
  const BinaryTest* test = Find(kBinary, name);
  if (test == nullptr) Fail(Cat("No test named '", name, "'."));
  const std::string_view other = name == "divisibleby" ? "num"
                                 : name == "in"        ? "seq"
                                 : name == "sameas"    ? "other"
                                                       : "/b";
  const Parameters parameters(name, {other}, 1, arguments);
  return test->call(in, input, parameters[0]);
}

}  // namespace quire::jinja
