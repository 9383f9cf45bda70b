#include <algorithm>
#include <ctime>

#include "model/chat/arguments.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/strftime.h"

// The functions that every template finds.
namespace quire::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's own bound

Value Range(Interpreter&, Arguments& arguments) {
  const size_t count = arguments.positional.size();
  const Parameters parameters("range", {"/start", "/stop", "/step"}, 1, arguments);
  auto range = std::make_shared<RangeObject>();
  range->start = count == 1 ? 0 : parameters.Index(0, 0);
  range->stop = parameters.Index(count == 1 ? 0 : 1, 0);
  range->step = parameters.Index(2, 1);
  if (range->step == 0) Fail("ValueError: range() arg 3 must not be zero");
  const Int span = range->step > 0 ? Int{range->stop} - range->start : Int{range->start} - range->stop;
  const Int stride = range->step > 0 ? Int{range->step} : -Int{range->step};
  const Int size = span <= 0 ? 0 : (span - 1) / stride + 1;
  if (size > kMaxRange) {
    Fail(Cat("OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kMaxRange, ")."));
  }
  range->size = static_cast<int64_t>(size);
  return Value::Of(Kind::kRange, std::move(range));
}

// dict(mapping_or_pairs, **named)
DictObject MakeDict(Interpreter& in, Arguments& arguments) {
  if (arguments.positional.size() > 1) Fail("TypeError: dict expected at most 1 argument");
  DictObject dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().entries) dict.Set(key, value);
    } else {
      for (const Value& pair : ToList(in.budget(), source)) {
        const std::vector<Value> items = ToList(in.budget(), pair);
        if (items.size() != 2) Fail("ValueError: dictionary update sequence element has not 2 items");
        dict.Set(items[0], items[1]);
      }
    }
  }
  in.budget().Elements(static_cast<int64_t>(dict.entries.size() + arguments.named.size()));
  for (auto& [name, value] : arguments.named) dict.Set(Value::String(name), std::move(value));
  return dict;
}

Value Dict(Interpreter& in, Arguments& arguments) {
  return Value::Dict(std::make_shared<DictObject>(MakeDict(in, arguments)));
}

Value Namespace(Interpreter& in, Arguments& arguments) { return in.MakeNamespace(MakeDict(in, arguments)); }

Value Cycler(Interpreter&, Arguments& arguments) {
  if (!arguments.named.empty()) Fail("TypeError: cycler() got an unexpected keyword argument");
  if (arguments.positional.empty()) Fail("RuntimeError: at least one item has to be provided");
  auto cycler = std::make_shared<CyclerObject>();
  for (const Value& item : arguments.positional) cycler->depth = std::max(cycler->depth, DepthAround(item.depth()));
  cycler->items = std::move(arguments.positional);
  return Value::Of(Kind::kCycler, std::move(cycler));
}

Value Joiner(Interpreter&, Arguments& arguments) {
  const Parameters parameters("joiner", {"sep"}, 0, arguments);
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = parameters.Or(0, Value::String(", "));
  joiner->depth = DepthAround(joiner->separator.depth());
  return Value::Of(Kind::kJoiner, std::move(joiner));
}

Value Lipsum(Interpreter&, Arguments&) { Fail("lipsum() is random and not available"); }

Value RaiseException(Interpreter& in, Arguments& arguments) {
  const Parameters parameters("raise_exception", {"message"}, 1, arguments);
  throw TemplateError(ErrorKind::kRaised, Str(in.budget(), parameters[0]));
}

Value StrftimeNow(Interpreter& in, Arguments& arguments) {
  const Parameters parameters("strftime_now", {"format"}, 1, arguments);
  return Value::String(FormatTime(in.budget(), parameters.Text(0), in.now()));
}

struct Global {
  std::string_view name;
  Value (*call)(Interpreter& in, Arguments& arguments);
};

constexpr Global kGlobals[] = {{"range", Range},
                               {"dict", Dict},
                               {"namespace", Namespace},
                               {"cycler", Cycler},
                               {"joiner", Joiner},
                               {"lipsum", Lipsum},
                               {"raise_exception", RaiseException},
                               {"strftime_now", StrftimeNow}};

}  // namespace

std::optional<Value> FindGlobal(std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name != name) continue;
    auto function = std::make_shared<FunctionObject>();
    function->name = std::string(name);
    function->call = global.call;
    return Value::Of(Kind::kFunction, std::move(function));
  }
  return std::nullopt;
}

}  // namespace quire::jinja
