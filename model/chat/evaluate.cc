#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "model/chat/attributes.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/interpreter.h"

// Expressions and calls.
namespace quire::jinja {

Value Interpreter::Lookup(NameId name) {
  if (const Value* value = scope_->Find(name); value != nullptr) return *value;
  return Missing(name);
}

Value Interpreter::Missing(NameId name) const {
  return Value::Undefined(Cat("'", program_.names[static_cast<size_t>(name)], "' is undefined"));
}

Value Interpreter::Evaluate(const ExpressionPtr& expression) {
  const Budget::Level level(budget_);
  budget_.Step();
  return EvaluateNode(*expression);
}

Value Interpreter::EvaluateNode(const Expression& expression) {
  return std::visit(
      [this](const auto& node) -> Value {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, Constant>) {
          return node.value;
        } else if constexpr (std::is_same_v<Node, Name>) {
          return Lookup(node.name);
        } else if constexpr (std::is_same_v<Node, ListLiteral>) {
          return Value::List(EvaluateAll(node.items));
        } else if constexpr (std::is_same_v<Node, TupleLiteral>) {
          return Value::Tuple(EvaluateAll(node.items));
        } else if constexpr (std::is_same_v<Node, DictLiteral>) {
          return EvaluateDict(node);
        } else if constexpr (std::is_same_v<Node, Binary>) {
          const Value left = Evaluate(node.left);
          return Arithmetic(budget_, node.op, left, Evaluate(node.right));
        } else if constexpr (std::is_same_v<Node, Concat>) {
          return EvaluateConcat(node);
        } else if constexpr (std::is_same_v<Node, And>) {
          Value left = Evaluate(node.left);
          return Truth(left) ? Evaluate(node.right) : left;
        } else if constexpr (std::is_same_v<Node, Or>) {
          Value left = Evaluate(node.left);
          return Truth(left) ? left : Evaluate(node.right);
        } else if constexpr (std::is_same_v<Node, Not>) {
          return Value::Bool(!Truth(Evaluate(node.operand)));
        } else if constexpr (std::is_same_v<Node, Negative>) {
          return Negate(Evaluate(node.operand));
        } else if constexpr (std::is_same_v<Node, Positive>) {
          return Posit(Evaluate(node.operand));
        } else if constexpr (std::is_same_v<Node, Compare>) {
          return EvaluateCompare(node);
        } else if constexpr (std::is_same_v<Node, Conditional>) {
          return EvaluateConditional(node);
        } else if constexpr (std::is_same_v<Node, Attribute>) {
          return GetAttribute(*this, Evaluate(node.object), node.name);
        } else if constexpr (std::is_same_v<Node, Subscript>) {
          return EvaluateSubscript(node);
        } else if constexpr (std::is_same_v<Node, Slice>) {
          Fail("TypeError: a slice is no value");
        } else if constexpr (std::is_same_v<Node, jinja::Call>) {
          const Value callee = Evaluate(node.callee);
          return Call(callee, EvaluateArguments(node.arguments));
        } else if constexpr (std::is_same_v<Node, Filter>) {
          return EvaluateFilter(node, nullptr);
        } else {
          static_assert(std::is_same_v<Node, Test>);
          const Value input = Evaluate(node.input);
          return Value::Bool(CallTest(*this, node.name, input, EvaluateArguments(node.arguments)));
        }
      },
      expression.node);
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) values.push_back(Evaluate(expression));
  return values;
}

Value Interpreter::EvaluateDict(const DictLiteral& node) {
  auto dict = std::make_shared<DictObject>();
  for (const auto& [key, value] : node.entries) {
    const Value name = Evaluate(key);
    dict->Set(name, Evaluate(value));
  }
  return Value::Dict(std::move(dict));
}

Value Interpreter::EvaluateCompare(const Compare& node) {
  Value left = Evaluate(node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = Evaluate(operand);
    bool holds = false;
    if (op == CompareOp::kIn || op == CompareOp::kNotIn) {
      holds = Contains(budget_, right, left) == (op == CompareOp::kIn);
    } else {
      holds = Compares(budget_, op, left, right);
    }
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateConditional(const Conditional& node) {
  if (Truth(Evaluate(node.test))) return Evaluate(node.then);
  if (node.otherwise != nullptr) return Evaluate(node.otherwise);
  return Value::Undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::EvaluateSubscript(const Subscript& node) {
  const Value object = Evaluate(node.object);
  const auto* slice = std::get_if<Slice>(&node.index->node);
  if (slice == nullptr) return GetItem(*this, object, Evaluate(node.index));
  std::optional<Value> parts[3];
  const ExpressionPtr* const expressions[3] = {&slice->start, &slice->stop, &slice->step};
  for (int i = 0; i < 3; ++i) {
    if (*expressions[i] == nullptr) continue;
    parts[i] = Evaluate(*expressions[i]);
    if (parts[i]->is(Kind::kNone)) parts[i].reset();
  }
  const auto part = [&parts](int i) { return parts[i].has_value() ? &*parts[i] : nullptr; };
  return GetSlice(*this, object, part(0), part(1), part(2));
}

Value Interpreter::EvaluateConcat(const Concat& node) {
  std::string text;
  for (const Value& part : EvaluateAll(node.parts)) {
    if (part.is(Kind::kString)) {
      budget_.Append(part.text(), &text);
    } else {
      budget_.Append(Str(budget_, part), &text);
    }
  }
  return Value::String(std::move(text));
}

Value Interpreter::EvaluateFilter(const Filter& node, const Value* block_text) {
  Value input;
  if (node.input == nullptr) {
    input = block_text == nullptr ? Value::String("") : *block_text;
  } else if (const auto* inner = std::get_if<Filter>(&node.input->node); inner != nullptr && block_text != nullptr) {
    input = EvaluateFilter(*inner, block_text);
  } else {
    input = Evaluate(node.input);
  }
  return CallFilter(*this, node.name, input, EvaluateArguments(node.arguments));
}

Arguments Interpreter::EvaluateArguments(const CallArguments& node) {
  Arguments arguments;
  arguments.positional = EvaluateAll(node.positional);
  if (node.star != nullptr) {
    for (Value& item : ToList(budget_, Evaluate(node.star))) arguments.positional.push_back(std::move(item));
  }
  for (const auto& [name, value] : node.named) arguments.named.emplace_back(name, Evaluate(value));
  if (node.double_star == nullptr) return arguments;
  const Value more = Evaluate(node.double_star);
  CheckDefined(more);
  if (!more.is(Kind::kDict)) Fail(Cat("TypeError: argument after ** must be a mapping, not ", TypeName(more)));
  for (const auto& [name, value] : more.dict().entries) {
    budget_.Elements(1);
    if (!name.is(Kind::kString)) Fail("TypeError: keywords must be strings");
    for (const auto& [other, held] : node.named) {
      if (other == name.text()) Fail(Cat("TypeError: got multiple values for keyword argument '", other, "'"));
    }
    arguments.named.emplace_back(name.text(), value);
  }
  return arguments;
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  const Budget::Level level(budget_);
  CheckDefined(callee);
  if (callee.is(Kind::kFunction)) {
    const auto function = callee.shared<FunctionObject>();
    return function->call(*this, arguments);
  }
  if (callee.is(Kind::kJoiner)) {
    auto& joiner = callee.as<JoinerObject>();
    if (!arguments.positional.empty() || !arguments.named.empty()) Fail("TypeError: a joiner takes no arguments");
    return std::exchange(joiner.used, true) ? joiner.separator : Value::String("");
  }
  if (callee.is(Kind::kLoop)) {
    const Value recurse = callee.as<LoopObject>().recurse;
    if (!recurse.is(Kind::kFunction)) {
      Fail("TypeError: The loop must have the 'recursive' marker to be called recursively.");
    }
    return Call(recurse, std::move(arguments));
  }
  Fail(Cat("TypeError: '", TypeName(callee), "' object is not callable"));
}

Value Interpreter::MakeNamespace(DictObject attributes) {
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  namespaces_.push_back(object);
  return Value::Of(Kind::kNamespace, std::move(object));
}

void Interpreter::Retain(const std::shared_ptr<Scope>& scope) {
  if (scope->captured) return;
  scope->captured = true;
  captured_.push_back(scope);
}

Value Interpreter::MakeMacro(std::shared_ptr<const Callable> callable) {
  Retain(scope_);
  auto macro = std::make_shared<FunctionObject>();
  macro->name = callable->name;
  macro->is_macro = true;
  macro->catch_kwargs = callable->uses_kwargs;
  macro->catch_varargs = callable->uses_varargs;
  macro->accesses_caller = callable->uses_caller;
  for (const Parameter& parameter : callable->parameters) {
    macro->parameters.push_back(program_.names[static_cast<size_t>(parameter.name)]);
  }
  macro->call = [callable = std::move(callable), scope = scope_](Interpreter& in, Arguments& arguments) {
    return in.CallMacro(callable, scope, arguments);
  };
  return Value::Of(Kind::kFunction, std::move(macro));
}

Value Interpreter::CallMacro(const std::shared_ptr<const Callable>& callable, const std::shared_ptr<Scope>& defined_in,
                             Arguments& arguments) {
  const int32_t line = line_;
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const std::shared_ptr<Scope> around = std::exchange(scope_, NewScope(defined_in, callable->frame));
  const absl::Cleanup restore = [&] {
    out_ = out;
    scope_ = around;
  };
  BindParameters(*callable, arguments);
  Execute(callable->frame.body);
  line_ = line;
  return Value::String(std::move(text));
}

void Interpreter::BindParameters(const Callable& callable, Arguments& arguments) {
  const size_t count = callable.parameters.size();
  std::vector<std::optional<Value>> values(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = program_.names[static_cast<size_t>(callable.parameters[i].name)];
    if (i < arguments.positional.size()) {
      values[i] = arguments.positional[i];
    } else {
      values[i] = arguments.TakeNamed(name);
    }
  }
  // Defaults see the parameters before them.
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = callable.parameters[i];
    if (values[i].has_value()) scope_->Set(parameter.name, *values[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    if (values[i].has_value()) continue;
    const Parameter& parameter = callable.parameters[i];
    const std::string& name = program_.names[static_cast<size_t>(parameter.name)];
    // Until its turn comes a parameter hides names around the macro.
    scope_->Set(parameter.name, Value::Undefined(Cat("parameter '", name, "' was not provided")));
  }
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = callable.parameters[i];
    if (!values[i].has_value() && parameter.default_value != nullptr) {
      scope_->Set(parameter.name, Evaluate(parameter.default_value));
    }
  }
  if (callable.uses_caller && !callable.explicit_caller) {
    auto caller = arguments.TakeNamed("caller");
    const bool given = caller.has_value() && !caller->is(Kind::kNone);
    scope_->Set(caller_name_, given ? *std::move(caller) : Value::Undefined("No caller defined"));
  }
  BindRest(callable, arguments);
}

void Interpreter::BindRest(const Callable& callable, Arguments& arguments) {
  const size_t count = callable.parameters.size();
  if (callable.uses_kwargs) {
    auto kwargs = std::make_shared<DictObject>();
    for (auto& [name, value] : arguments.named) kwargs->Set(Value::String(name), std::move(value));
    scope_->Set(kwargs_name_, Value::Dict(std::move(kwargs)));
  } else if (!arguments.named.empty()) {
    Fail(Cat("TypeError: macro '", callable.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
  }
  if (callable.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    scope_->Set(varargs_name_, Value::Tuple(std::move(rest)));
  } else if (arguments.positional.size() > count) {
    Fail(Cat("TypeError: macro '", callable.name, "' takes not more than ", count, " argument(s)"));
  }
}

}  // namespace quire::jinja
