#include "model/chat/arguments.h"
#include "model/chat/attributes.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/filters.h"
#include "model/chat/interpreter.h"

// map, select, reject and their kin, which call other filters and tests; and the table of all filters.
namespace quire::jinja {
namespace {

// What `map` does to each element.
std::function<Value(Interpreter&, const Value&)> Mapping(Arguments arguments) {
  if (arguments.positional.empty()) {
    auto attribute = arguments.TakeNamed("attribute");
    if (!attribute.has_value()) Fail("map requires a filter argument");
    auto otherwise = arguments.TakeNamed("default");
    if (otherwise.has_value() && otherwise->is(Kind::kNone)) otherwise.reset();
    if (!arguments.named.empty()) Fail(Cat("Unexpected keyword argument '", arguments.named[0].first, "'"));
    return [path = AttributePath(*attribute), otherwise](Interpreter& in, const Value& item) {
      return path.Get(in, item, otherwise.has_value() ? &*otherwise : nullptr);
    };
  }
  const Value name = arguments.positional[0];
  arguments.positional.erase(arguments.positional.begin());
  return [name, arguments](Interpreter& in, const Value& item) {
    return CallFilter(in, name.is(Kind::kString) ? name.text() : std::string(), item, arguments);
  };
}

Value MapFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  // As a generator does, everything is looked at when the first element is asked for.
  return MakeIterator("generator", input.depth() + 1,
                      [&in, input, arguments, next = NextFn(),
                       map = std::function<Value(Interpreter&, const Value&)>()](Value* item) mutable {
                        if (next == nullptr) {
                          if (!Truth(input)) return false;
                          map = Mapping(arguments);
                          next = Iterate(input);
                        }
                        in.budget().Step();
                        if (!next(item)) return false;
                        *item = map(in, *item);
                        return true;
                      });
}

// What `select` and its kin ask of each element.
std::function<bool(Interpreter&, const Value&)> Selector(Arguments arguments, bool by_attribute) {
  std::optional<AttributePath> path;
  if (by_attribute) {
    if (arguments.positional.empty()) Fail("Missing parameter for attribute name");
    path.emplace(arguments.positional[0]);
    arguments.positional.erase(arguments.positional.begin());
  }
  std::optional<Value> name;
  if (!arguments.positional.empty()) {
    name = arguments.positional[0];
    arguments.positional.erase(arguments.positional.begin());
  }
  return [path, name, arguments](Interpreter& in, const Value& item) {
    const Value value = path.has_value() ? path->Get(in, item) : item;
    if (!name.has_value()) return Truth(value);
    return CallTest(in, name->is(Kind::kString) ? name->text() : std::string(), value, arguments);
  };
}

template <bool keep, bool by_attribute>
Value SelectFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  return MakeIterator("generator", input.depth() + 1,
                      [&in, input, arguments, next = NextFn(),
                       selects = std::function<bool(Interpreter&, const Value&)>()](Value* item) mutable {
                        if (next == nullptr) {
                          if (!Truth(input)) return false;
                          selects = Selector(arguments, by_attribute);
                          next = Iterate(input);
                        }
                        while (next(item)) {
                          in.budget().Step();
                          if (selects(in, *item) == keep) return true;
                        }
                        return false;
                      });
}

Value AttrFilter(Interpreter& in, const Value& input, Arguments& arguments) {
  const Parameters parameters("attr", {"name"}, 1, arguments);
  const std::string& name = parameters.Text(0);
  CheckDefined(input);
  // Attributes only: entries of a dict are none.
  if (!input.is(Kind::kDict)) return GetAttribute(in, input, name);
  const auto bare = Value::Dict(std::make_shared<DictObject>());
  if (GetAttribute(in, bare, name).is(Kind::kUndefined)) return GetAttribute(in, bare, name);
  return GetAttribute(in, input, name);
}

// Known by name, so that a template which may use one loads.
Value UnavailableFilter(Interpreter&, const Value&, Arguments&) { Fail("this filter is not available"); }

constexpr FilterEntry kFilters[] = {{"random", UnavailableFilter},
                                    {"urlize", UnavailableFilter},
                                    {"pprint", UnavailableFilter},
                                    {"wordwrap", UnavailableFilter},
                                    {"map", MapFilter},
                                    {"select", SelectFilter<true, false>},
                                    {"reject", SelectFilter<false, false>},
                                    {"selectattr", SelectFilter<true, true>},
                                    {"rejectattr", SelectFilter<false, true>},
                                    {"attr", AttrFilter}};

const FilterEntry* FindFilter(std::string_view name) {
  for (const auto& table : {TextFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const FilterEntry> SelectionFilters() { return kFilters; }

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value CallFilter(Interpreter& in, std::string_view name, const Value& input, Arguments arguments) {
  const Budget::Level level(in.budget());
  in.budget().Step();
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) Fail(Cat("No filter named '", name, "'."));
  return filter->call(in, input, arguments);
}

}  // namespace quire::jinja
