#include "model/chat/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>

#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/text.h"

namespace quire::jinja {
namespace {

std::string_view OpName(CompareOp op) {
  constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kNames[static_cast<size_t>(op)];
}

std::partial_ordering CompareIntToFloat(Int left, double right) {
  if (std::isnan(right)) return std::partial_ordering::unordered;
  if (right >= 1.7e38) return std::partial_ordering::less;
  if (right <= -1.7e38) return std::partial_ordering::greater;
  const Int whole = static_cast<Int>(right);
  if (left != whole) return left < whole ? std::partial_ordering::less : std::partial_ordering::greater;
  return 0.0 <=> right - std::trunc(right);
}

std::partial_ordering Reversed(std::partial_ordering order) { return 0 <=> order; }

std::partial_ordering CompareNumbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.integer() < right.integer()   ? std::partial_ordering::less
           : left.integer() > right.integer() ? std::partial_ordering::greater
                                              : std::partial_ordering::equivalent;
  }
  if (left.is_integral()) return CompareIntToFloat(left.integer(), right.floating());
  if (right.is_integral()) return Reversed(CompareIntToFloat(right.integer(), left.floating()));
  return left.floating() <=> right.floating();
}

bool Holds(CompareOp op, std::partial_ordering order) {
  switch (op) {
    case CompareOp::kLt:
      return order < 0;
    case CompareOp::kLe:
      return order <= 0;
    case CompareOp::kGt:
      return order > 0;
    case CompareOp::kGe:
      return order >= 0;
    default:
      return order == 0;
  }
}

bool EqualDicts(Budget& budget, const DictObject& left, const DictObject& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    budget.Step();
    const Value* other = right.Find(key);
    if (other == nullptr || !Equal(budget, value, *other)) return false;
  }
  return true;
}

bool EqualItems(Budget& budget, const std::vector<Value>& left, const std::vector<Value>& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!Equal(budget, left[i], right[i])) return false;
  }
  return true;
}

bool EqualRanges(const RangeObject& left, const RangeObject& right) {
  if (left.size != right.size) return false;
  if (left.size == 0) return true;
  return left.start == right.start && (left.size == 1 || left.step == right.step);
}

// dict.keys() and dict.items() compare as sets.
bool EqualViews(Budget& budget, const ViewObject& left, const ViewObject& right) {
  if (left.what != right.what || left.what == ViewObject::What::kValues) return &left == &right;
  if (left.what == ViewObject::What::kItems) return EqualDicts(budget, *left.dict, *right.dict);
  if (left.dict->entries.size() != right.dict->entries.size()) return false;
  return std::all_of(left.dict->entries.begin(), left.dict->entries.end(),
                     [&right](const auto& entry) { return right.dict->Find(entry.first) != nullptr; });
}

bool ComparesSequences(Budget& budget, CompareOp op, const std::vector<Value>& left, const std::vector<Value>& right) {
  const size_t shared = std::min(left.size(), right.size());
  for (size_t i = 0; i < shared; ++i) {
    if (!Equal(budget, left[i], right[i])) return Compares(budget, op, left[i], right[i]);
  }
  return Holds(op, static_cast<int64_t>(left.size()) <=> static_cast<int64_t>(right.size()));
}

}  // namespace

void FailUndefined(const Value& value) {
  const UndefinedObject& undefined = value.undefined();
  throw TemplateError(undefined.security ? ErrorKind::kSecurity : ErrorKind::kUndefined, undefined.message);
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.floating() != 0;
    default: {
      const auto length = Length(value);
      return !length.has_value() || *length != 0;
    }
  }
}

bool Equal(Budget& budget, const Value& left, const Value& right) {
  const Budget::Level level(budget);
  budget.Step();
  if (left.is_number() && right.is_number()) return CompareNumbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  if (left.address() != nullptr && left.address() == right.address()) return true;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      budget.Step(static_cast<int64_t>(std::min(left.text().size(), right.text().size()) / 64));
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(budget, left.items(), right.items());
    case Kind::kDict:
      return EqualDicts(budget, left.dict(), right.dict());
    case Kind::kRange:
      return EqualRanges(left.as<RangeObject>(), right.as<RangeObject>());
    case Kind::kView:
      return EqualViews(budget, left.as<ViewObject>(), right.as<ViewObject>());
    default:
      return false;
  }
}

bool Compares(Budget& budget, CompareOp op, const Value& left, const Value& right) {
  if (op == CompareOp::kEq) return Equal(budget, left, right);
  if (op == CompareOp::kNe) return !Equal(budget, left, right);
  CheckDefined(left);
  CheckDefined(right);
  const Budget::Level level(budget);
  budget.Step();
  if (left.is_number() && right.is_number()) return Holds(op, CompareNumbers(left, right));
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    // Bytes of UTF-8 stand in the order of code points.
    return Holds(op, left.text().compare(right.text()) <=> 0);
  }
  if (left.is_sequence() && left.kind() == right.kind())
    return ComparesSequences(budget, op, left.items(), right.items());
  Fail(Cat("TypeError: '", OpName(op), "' not supported between instances of '", TypeName(left), "' and '",
           TypeName(right), "'"));
}

bool Contains(Budget& budget, const Value& container, const Value& item) {
  budget.Step();
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        CheckDefined(item);
        Fail(Cat("TypeError: 'in <string>' requires string as left operand, not ", TypeName(item)));
      }
      budget.Step(static_cast<int64_t>(container.text().size() / 64));
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict:
      return container.dict().Find(item) != nullptr;
    case Kind::kNamespace:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner:
      Fail(Cat("TypeError: argument of type '", TypeName(container), "' is not iterable"));
    default: {
      if (!IsIterable(container)) Fail(Cat("TypeError: argument of type '", TypeName(container), "' is not iterable"));
      const NextFn next = Iterate(container);
      Value element;
      while (next(&element)) {
        if (Equal(budget, element, item)) return true;
      }
      return false;
    }
  }
}

std::optional<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.as<StringObject>().num_chars;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Kind::kView:
      return static_cast<int64_t>(value.as<ViewObject>().dict->entries.size());
    case Kind::kRange:
      return value.as<RangeObject>().size;
    default:
      return std::nullopt;
  }
}

bool IsIterable(const Value& value) { return Length(value).has_value() || value.is(Kind::kIterator); }

NextFn Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return [](Value*) { return false; };
    case Kind::kString:
      return [value, offset = size_t{0}](Value* item) mutable {
        const std::string& text = value.text();
        if (offset >= text.size()) return false;
        const size_t end = OffsetOf(text, 1, offset);
        *item = Value::String(text.substr(offset, end - offset), value.markup());
        offset = end;
        return true;
      };
    case Kind::kList:
    case Kind::kTuple:
      return [value, i = size_t{0}](Value* item) mutable {
        if (i >= value.items().size()) return false;
        *item = value.items()[i++];
        return true;
      };
    case Kind::kDict:
      return [value, i = size_t{0}](Value* item) mutable {
        if (i >= value.dict().entries.size()) return false;
        *item = value.dict().entries[i++].first;
        return true;
      };
    case Kind::kView:
      return [value, i = size_t{0}](Value* item) mutable {
        const auto& view = value.as<ViewObject>();
        if (i >= view.dict->entries.size()) return false;
        const auto& [key, entry] = view.dict->entries[i++];
        *item = view.what == ViewObject::What::kKeys     ? key
                : view.what == ViewObject::What::kValues ? entry
                                                         : Value::Tuple({key, entry});
        return true;
      };
    case Kind::kRange:
      return [value, i = int64_t{0}](Value* item) mutable {
        const auto& range = value.as<RangeObject>();
        if (i >= range.size) return false;
        *item = Value::Integer(Int{range.start} + Int{range.step} * i++);
        return true;
      };
    case Kind::kIterator:
      return [value](Value* item) { return value.as<IteratorObject>().next(item); };
    default:
      Fail(Cat("TypeError: '", TypeName(value), "' object is not iterable"));
  }
}

std::vector<Value> ToList(Budget& budget, const Value& value) {
  std::vector<Value> items;
  const NextFn next = Iterate(value);
  Value item;
  while (next(&item)) {
    budget.Elements(1);
    items.push_back(std::move(item));
  }
  return items;
}

Value MakeIterator(std::string type_name, int32_t depth, NextFn next) {
  auto object = std::make_shared<IteratorObject>();
  object->depth = DepthAround(depth);
  object->type_name = std::move(type_name);
  object->next = [next = std::move(next), ended = false](Value* item) mutable {
    if (!ended && next(item)) return true;
    ended = true;
    return false;
  };
  return Value::Of(Kind::kIterator, std::move(object));
}

int64_t IndexOf(const Value& value, std::string_view what) {
  CheckDefined(value);
  if (!value.is_integral()) {
    Fail(Cat("TypeError: ", what, " must be an integer, not ", TypeName(value)));
  }
  constexpr Int kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::clamp(value.integer(), -kMax, kMax));
}

}  // namespace quire::jinja
