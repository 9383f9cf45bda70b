#include <algorithm>

#include "model/chat/arguments.h"
#include "model/chat/attributes.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/filters.h"
#include "model/chat/interpreter.h"
#include "model/chat/sorting.h"
#include "model/chat/text.h"

// Filters on sequences and dicts.
namespace quire::jinja {
namespace {

Value LengthFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("length", {}, 0, arguments);
  if (input.is(Kind::kLoop)) return Value::Integer(input.as<LoopObject>().Length(in.budget()));
  const auto length = Length(input);
  if (!length.has_value()) Fail(Cat("TypeError: object of type '", TypeName(input), "' has no len()"));
  return Value::Integer(*length);
}

Value DefaultFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("default", {"default_value", "boolean"}, 0, arguments);
  const bool replace = input.is(Kind::kUndefined) || (parameters.Flag(1, false) && !Truth(input));
  return replace ? parameters.Or(0, Value::String("")) : input;
}

Value FirstFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("first", {}, 0, arguments);
  Value item;
  return Iterate(input)(&item) ? item : Value::Undefined("No first item, sequence was empty.");
}

// What reversed() takes.
bool IsReversible(const Value& value) {
  return value.is(Kind::kString) || value.is_sequence() || value.is(Kind::kRange) || value.is(Kind::kDict) ||
         value.is(Kind::kView) || value.is(Kind::kUndefined);
}

Value LastFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("last", {}, 0, arguments);
  if (!IsReversible(input)) Fail(Cat("TypeError: '", TypeName(input), "' object is not reversible"));
  if (*Length(input) == 0) return Value::Undefined("No last item, sequence was empty.");
  if (!input.is(Kind::kDict) && !input.is(Kind::kView)) return GetItem(in, input, Value::Integer(-1));
  return ToList(in.budget(), input).back();
}

Value ListFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("list", {}, 0, arguments);
  return Value::List(ToList(in.budget(), input));
}

Value ItemsFilter(Interpreter&, const Value& input, Arguments& arguments) {
  const Parameters parameters("items", {}, 0, arguments);
  // A generator: a wrong input shows when it is read.
  return MakeIterator("generator", input.depth() + 1, [input, next = NextFn()](Value* item) mutable {
    if (next == nullptr && !input.is(Kind::kUndefined) && !input.is(Kind::kDict)) {
      Fail("TypeError: Can only get item pairs from a mapping.");
    }
    if (next == nullptr) {
      if (input.is(Kind::kUndefined)) return false;
      next = [input, i = size_t{0}](Value* pair) mutable {
        const auto& entries = input.dict().entries;
        if (i >= entries.size()) return false;
        *pair = Value::Tuple({entries[i].first, entries[i].second});
        ++i;
        return true;
      };
    }
    return next(item);
  });
}

Value ReverseFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("reverse", {}, 0, arguments);
  if (!input.is(Kind::kString) && !IsIterable(input)) Fail("argument must be iterable");
  std::vector<Value> items = ToList(in.budget(), input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kString)) {
    std::string text;
    for (const Value& item : items) text += item.text();
    return Value::String(std::move(text), input.markup());
  }
  Value list = Value::List(std::move(items));
  if (!IsReversible(input)) return list;
  return MakeIterator("reversed", list.depth(), Iterate(list));
}

Value SortFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("sort", {"reverse", "case_sensitive", "attribute"}, 0, arguments);
  const SortKey key(parameters.Or(2, Value::None()), parameters.Flag(1, false), true);
  return Value::List(Sorted(in, ToList(in.budget(), input), key, parameters.Flag(0, false)));
}

Value DictSortFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("dictsort", {"case_sensitive", "by", "reverse"}, 0, arguments);
  const std::string by = parameters.Has(1) ? parameters.Text(1) : "key";
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  CheckDefined(input);
  if (!input.is(Kind::kDict)) Fail(Cat("AttributeError: '", TypeName(input), "' object has no attribute 'items'"));
  const SortKey key(Value::Integer(by == "key" ? 0 : 1), parameters.Flag(0, false), false);
  std::vector<Value> pairs = ToList(in.budget(), in.Call(*FindMethod(input, "items"), {}));
  return Value::List(Sorted(in, std::move(pairs), key, parameters.Flag(2, false)));
}

Value UniqueFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("unique", {"case_sensitive", "attribute"}, 0, arguments);
  const SortKey key(parameters.Or(1, Value::None()), parameters.Flag(0, false), false);
  DictObject seen;
  std::vector<Value> kept;
  for (Value& item : ToList(in.budget(), input)) {
    const Value name = key.Of(in, item);
    if (seen.Find(name) != nullptr) continue;
    seen.Set(name, Value::None());
    kept.push_back(std::move(item));
  }
  const Value list = Value::List(std::move(kept));
  return MakeIterator("generator", list.depth(), Iterate(list));
}

template <bool want_greater>
Value ExtremeFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters(want_greater ? "max" : "min", {"case_sensitive", "attribute"}, 0, arguments);
  const SortKey key(parameters.Or(1, Value::None()), parameters.Flag(0, false), false);
  Value best;
  Value best_key;
  bool any = false;
  for (Value& item : ToList(in.budget(), input)) {
    Value item_key = key.Of(in, item);
    if (any && !Compares(in.budget(), want_greater ? CompareOp::kGt : CompareOp::kLt, item_key, best_key)) continue;
    best = std::move(item);
    best_key = std::move(item_key);
    any = true;
  }
  return any ? best : Value::Undefined("No aggregated item, sequence was empty.");
}

Value SumFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("sum", {"attribute", "start"}, 0, arguments);
  const AttributePath path(parameters.Or(0, Value::None()));
  Value sum = parameters.Or(1, Value::Integer(0));
  if (sum.is(Kind::kString)) Fail("TypeError: sum() can't sum strings [use ''.join(seq) instead]");
  for (Value& item : ToList(in.budget(), input)) {
    sum = Arithmetic(in.budget(), BinaryOp::kAdd, sum, path.Get(in, std::move(item)));
  }
  return sum;
}

Value ListIterator(std::vector<Value> lists) {
  const Value list = Value::List(std::move(lists));
  return MakeIterator("generator", list.depth(), Iterate(list));
}

Value BatchFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("batch", {"linecount", "fill_with"}, 1, arguments);
  const int64_t size = parameters.Index(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : ToList(in.budget(), input)) {
    if (static_cast<int64_t>(batch.size()) == size) batches.push_back(Value::List(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    const int64_t missing = size - static_cast<int64_t>(batch.size());
    if (!parameters.IsNoneOrAbsent(1) && missing > 0) {
      in.budget().Elements(missing);
      batch.insert(batch.end(), static_cast<size_t>(missing), parameters[1]);
    }
    batches.push_back(Value::List(std::move(batch)));
  }
  return ListIterator(std::move(batches));
}

Value SliceFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("slice", {"slices", "fill_with"}, 1, arguments);
  const int64_t count = parameters.Index(0, 1);
  const std::vector<Value> items = ToList(in.budget(), input);
  if (count == 0) Fail("ZeroDivisionError: integer division or modulo by zero");
  std::vector<Value> slices;
  const auto size = static_cast<int64_t>(items.size());
  int64_t start = 0;
  for (int64_t i = 0; i < count; ++i) {
    in.budget().Elements(1);
    const bool longer = i < size % count;
    const int64_t end = start + size / count + (longer ? 1 : 0);
    std::vector<Value> slice(items.begin() + start, items.begin() + end);
    if (!parameters.IsNoneOrAbsent(1) && !longer) slice.push_back(parameters[1]);
    slices.push_back(Value::List(std::move(slice)));
    start = end;
  }
  return ListIterator(std::move(slices));
}

Value GroupByFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("groupby", {"attribute", "default", "case_sensitive"}, 1, arguments);
  const bool case_sensitive = parameters.Flag(2, false);
  const Value* otherwise = parameters.IsNoneOrAbsent(1) ? nullptr : &parameters[1];
  const SortKey key(parameters[0], case_sensitive, false, otherwise);
  const AttributePath path(parameters[0]);
  std::vector<Value> groups;
  std::vector<Value> members;
  Value current;
  const auto flush = [&] {
    if (members.empty()) return;
    Value name = case_sensitive ? current : path.Get(in, members[0], otherwise);
    Value group = Value::Tuple({std::move(name), Value::List(std::exchange(members, {}))});
    group.as<SequenceObject>().group = true;
    groups.push_back(std::move(group));
  };
  for (Value& item : Sorted(in, ToList(in.budget(), input), key, false)) {
    Value item_key = key.Of(in, item);
    if (!members.empty() && !Equal(in.budget(), item_key, current)) flush();
    if (members.empty()) current = std::move(item_key);
    members.push_back(std::move(item));
  }
  flush();
  return Value::List(std::move(groups));
}

constexpr FilterEntry kFilters[] = {
    {"length", LengthFilter},     {"count", LengthFilter},       {"default", DefaultFilter},   {"d", DefaultFilter},
    {"first", FirstFilter},       {"last", LastFilter},          {"list", ListFilter},         {"items", ItemsFilter},
    {"reverse", ReverseFilter},   {"sort", SortFilter},          {"dictsort", DictSortFilter}, {"unique", UniqueFilter},
    {"max", ExtremeFilter<true>}, {"min", ExtremeFilter<false>}, {"sum", SumFilter},           {"batch", BatchFilter},
    {"slice", SliceFilter},       {"groupby", GroupByFilter}};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kFilters; }

}  // namespace quire::jinja
