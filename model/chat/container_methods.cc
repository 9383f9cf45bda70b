#include <algorithm>

#include "model/chat/arguments.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"
#include "model/chat/methods.h"

// The methods of list, tuple and dict that do not change them.
namespace quire::jinja {
namespace {

Value ViewMethod(const Value& self, Arguments& arguments, std::string_view name, ViewObject::What what) {
  const Parameters parameters(name, {}, 0, arguments);
  auto view = std::make_shared<ViewObject>();
  view->depth = DepthAround(self.depth() + 1);  // items() makes tuples
  view->dict = self.shared<DictObject>();
  view->what = what;
  return Value::Of(Kind::kView, std::move(view));
}

Value GetMethod(Interpreter&, const Value& self, Arguments& arguments) {
  const Parameters parameters("get", {"/key", "/default"}, 1, arguments);
  const Value* value = self.dict().Find(parameters[0]);
  return value != nullptr ? *value : parameters.Or(1, Value::None());
}

Value CountMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("count", {"/value"}, 1, arguments);
  int64_t count = 0;
  for (const Value& item : self.items()) count += Equal(in.budget(), item, parameters[0]);
  return Value::Integer(count);
}

Value IndexMethod(Interpreter& in, const Value& self, Arguments& arguments) {
  const Parameters parameters("index", {"/value", "/start", "/stop"}, 1, arguments);
  const auto size = static_cast<int64_t>(self.items().size());
  const auto position = [&](size_t i, int64_t otherwise) {
    const int64_t value = parameters.Index(i, otherwise);
    return value < 0 ? std::max<int64_t>(0, value + size) : std::min(value, size);
  };
  for (int64_t i = position(1, 0); i < position(2, size); ++i) {
    if (Equal(in.budget(), self.items()[static_cast<size_t>(i)], parameters[0])) return Value::Integer(i);
  }
  Fail(Cat("ValueError: the value is not in the ", TypeName(self)));
}

Value CopyMethod(Interpreter&, const Value& self, Arguments& arguments) {
  const Parameters parameters("copy", {}, 0, arguments);
  return self;
}

std::optional<MethodFn> FindContainerMethod(const Value& object, std::string_view name) {
  if (object.is_sequence()) {
    if (name == "count") return CountMethod;
    if (name == "index") return IndexMethod;
    if (name == "copy" && object.is(Kind::kList)) return CopyMethod;
    return std::nullopt;
  }
  using What = ViewObject::What;
  if (name == "get") return GetMethod;
  if (name == "copy") return CopyMethod;
  if (name == "keys")
    return [](Interpreter&, const Value& s, Arguments& a) { return ViewMethod(s, a, "keys", What::kKeys); };
  if (name == "values") {
    return [](Interpreter&, const Value& s, Arguments& a) { return ViewMethod(s, a, "values", What::kValues); };
  }
  if (name == "items")
    return [](Interpreter&, const Value& s, Arguments& a) { return ViewMethod(s, a, "items", What::kItems); };
  return std::nullopt;
}

}  // namespace

std::optional<Value> FindMethod(const Value& object, std::string_view name) {
  auto method = object.is(Kind::kString) ? FindStringMethod(name) : FindContainerMethod(object, name);
  if (!method.has_value()) return std::nullopt;
  auto function = std::make_shared<FunctionObject>();
  function->depth = DepthAround(object.depth());
  function->name = std::string(name);
  function->call = [object, method = *std::move(method)](Interpreter& in, Arguments& arguments) {
    Value result = method(in, object, arguments);
    if (object.is(Kind::kString)) in.budget().Bytes(static_cast<int64_t>(object.text().size()));
    return result;
  };
  return Value::Of(Kind::kFunction, std::move(function));
}

}  // namespace quire::jinja
