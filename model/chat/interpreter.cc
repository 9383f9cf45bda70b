#include "model/chat/interpreter.h"

#include <algorithm>
#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"

// Statements.
namespace quire::jinja {

void Scope::Set(NameId name, Value value) {
  for (auto& [other, held] : names) {
    if (other != name) continue;
    held = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

const Value* Scope::Find(NameId name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [other, value] : scope->names) {
      if (other == name) return &value;
    }
  }
  return nullptr;
}

bool LoopObject::Advance() {
  Value item;
  if (after.has_value()) {
    item = *std::move(after);
    after.reset();
  } else if (!next(&item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = std::move(item);
  return true;
}

bool LoopObject::IsLast() {
  if (after.has_value()) return false;
  Value item;
  if (!next(&item)) return true;
  after = std::move(item);
  return false;
}

int64_t LoopObject::Length(Budget& budget) {
  if (length.has_value()) return *length;
  length = jinja::Length(iterable);
  if (length.has_value()) return *length;
  std::vector<Value> rest;
  Value item;
  while (next(&item)) {
    budget.Elements(1);
    rest.push_back(item);
  }
  length = static_cast<int64_t>(rest.size()) + index0 + 1 + (after.has_value() ? 1 : 0);
  next = Iterate(Value::List(std::move(rest)));
  return *length;
}

Interpreter::~Interpreter() {
  for (const auto& object : namespaces_) object->attributes = DictObject();
  for (const auto& scope : captured_) scope->names.clear();
}

std::string Interpreter::Run(const DictObject& context) {
  scope_ = std::make_shared<Scope>(nullptr);
  for (NameId id = 0; id < static_cast<NameId>(program_.names.size()); ++id) {
    const std::string& name = program_.names[static_cast<size_t>(id)];
    if (const Value* value = context.Find(name); value != nullptr) {
      scope_->Set(id, *value);
    } else if (auto global = FindGlobal(name); global.has_value()) {
      scope_->Set(id, *std::move(global));
    }
    if (name == "loop") loop_name_ = id;
    if (name == "caller") caller_name_ = id;
    if (name == "kwargs") kwargs_name_ = id;
    if (name == "varargs") varargs_name_ = id;
  }
  // What the template assigns at its top stands in a scope of its own.
  scope_ = NewScope(scope_, program_.frame);
  std::string out;
  out_ = &out;
  try {
    Execute(program_.frame.body);
  } catch (const TemplateError& error) {
    throw TemplateError(error.kind(), error.message(), line_);
  }
  return out;
}

std::shared_ptr<Scope> Interpreter::NewScope(std::shared_ptr<Scope> around, const Frame& frame) const {
  auto scope = std::make_shared<Scope>(std::move(around));
  for (const NameId name : frame.hidden) scope->Set(name, Missing(name));
  return scope;
}

Interpreter::Flow Interpreter::Execute(const Block& block) {
  for (const Statement& statement : block) {
    if (const Flow flow = Execute(statement); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement) {
  const Budget::Level level(budget_);
  budget_.Step();
  line_ = statement.line;
  return std::visit(
      [this](const auto& node) {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, Text>) {
          budget_.Append(node.text, out_);
        } else if constexpr (std::is_same_v<Node, jinja::Print>) {
          Print(Evaluate(node.value));
        } else if constexpr (std::is_same_v<Node, If>) {
          return ExecuteIf(node);
        } else if constexpr (std::is_same_v<Node, For>) {
          return ExecuteFor(node);
        } else if constexpr (std::is_same_v<Node, Set>) {
          CheckNamespaces(node.target);
          Assign(node.target, Evaluate(node.value));
        } else if constexpr (std::is_same_v<Node, SetBlock>) {
          return ExecuteSetBlock(node);
        } else if constexpr (std::is_same_v<Node, Macro>) {
          scope_->Set(node.name, MakeMacro(node.callable));
        } else if constexpr (std::is_same_v<Node, CallBlock>) {
          ExecuteCallBlock(node);
        } else if constexpr (std::is_same_v<Node, FilterBlock>) {
          return ExecuteFilterBlock(node);
        } else if constexpr (std::is_same_v<Node, With>) {
          return ExecuteWith(node);
        } else if constexpr (std::is_same_v<Node, Scoped>) {
          return ExecuteScoped(node.frame);
        } else if constexpr (std::is_same_v<Node, Break>) {
          return Flow::kBreak;
        } else if constexpr (std::is_same_v<Node, Continue>) {
          return Flow::kContinue;
        }
        return Flow::kNext;
      },
      statement.node);
}

void Interpreter::Print(const Value& value) {
  if (value.is(Kind::kString)) {
    budget_.Append(value.text(), out_);
  } else {
    budget_.Append(Str(budget_, value), out_);
  }
}

Interpreter::Flow Interpreter::ExecuteIf(const If& node) {
  for (const auto& [test, body] : node.branches) {
    if (Truth(Evaluate(test))) return Execute(body);
  }
  return Execute(node.otherwise);
}

Interpreter::Flow Interpreter::ExecuteScoped(const Frame& frame) {
  const std::shared_ptr<Scope> around = scope_;
  const absl::Cleanup restore = [&] { scope_ = around; };
  scope_ = NewScope(around, frame);
  return Execute(frame.body);
}

Interpreter::Flow Interpreter::ExecuteFor(const For& node) { return RunLoop(node, Evaluate(node.iterable), 0, scope_); }

NextFn Interpreter::FilteredItems(const For& node, const Value& iterable, const std::shared_ptr<Scope>& around) {
  return [this, &node, around, next = Iterate(iterable)](Value* item) {
    const std::shared_ptr<Scope> caller = scope_;
    const absl::Cleanup restore = [&] { scope_ = caller; };
    while (next(item)) {
      budget_.Step();
      scope_ = std::make_shared<Scope>(around);
      Assign(node.target, *item);
      if (Truth(Evaluate(node.filter))) return true;
    }
    return false;
  };
}

Interpreter::Flow Interpreter::RunLoop(const For& node, const Value& iterable, int32_t depth0,
                                       std::shared_ptr<Scope> around) {
  if (node.filter != nullptr || node.recursive) Retain(around);
  auto loop = std::make_shared<LoopObject>();
  loop->depth = DepthAround(iterable.depth());
  loop->depth0 = depth0;
  // A filtered loop iterates over something that has no length.
  loop->iterable = node.filter == nullptr
                       ? iterable
                       : MakeIterator("generator", iterable.depth(), FilteredItems(node, iterable, around));
  loop->next = Iterate(loop->iterable);
  if (node.recursive) {
    auto recurse = std::make_shared<FunctionObject>();
    recurse->name = "loop";
    recurse->call = [&node, around, depth0](Interpreter& in, Arguments& arguments) {
      if (arguments.positional.size() != 1 || !arguments.named.empty()) Fail("TypeError: loop() takes one iterable");
      std::string text;
      std::string* const out = std::exchange(in.out_, &text);
      const absl::Cleanup restore = [&] { in.out_ = out; };
      in.RunLoop(node, arguments.positional[0], depth0 + 1, around);
      return Value::String(std::move(text));
    };
    loop->recurse = Value::Of(Kind::kFunction, std::move(recurse));
  }
  const std::shared_ptr<Scope> before = scope_;
  const absl::Cleanup restore = [&] { scope_ = before; };
  // As in jinja2, an iteration that breaks or continues does not count: the else branch may follow it.
  bool any = false;
  while (loop->Advance()) {
    budget_.Step();
    scope_ = NewScope(around, node.frame);
    if (loop_name_ >= 0) scope_->Set(loop_name_, Value::Of(Kind::kLoop, loop));
    Assign(node.target, loop->current);
    const Flow flow = Execute(node.frame.body);
    any = any || flow == Flow::kNext;
    if (flow == Flow::kBreak) break;
  }
  if (any) return Flow::kNext;
  scope_ = NewScope(around, node.otherwise);
  return Execute(node.otherwise.body);
}

std::string Interpreter::Capture(const Frame& frame, Flow* flow) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  const std::shared_ptr<Scope> around = std::exchange(scope_, NewScope(scope_, frame));
  const absl::Cleanup restore = [&] {
    out_ = out;
    scope_ = around;
  };
  *flow = Execute(frame.body);
  return text;
}

Interpreter::Flow Interpreter::ExecuteSetBlock(const SetBlock& node) {
  CheckNamespaces(node.target);
  Flow flow = Flow::kNext;
  Value text = Value::String(Capture(node.frame, &flow));
  if (flow != Flow::kNext) return flow;
  if (node.filter != nullptr) text = EvaluateFilter(std::get<Filter>(node.filter->node), &text);
  Assign(node.target, text);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteFilterBlock(const FilterBlock& node) {
  Flow flow = Flow::kNext;
  const Value text = Value::String(Capture(node.frame, &flow));
  if (flow != Flow::kNext) return flow;
  const Value filtered = EvaluateFilter(std::get<Filter>(node.filter->node), &text);
  if (!filtered.is(Kind::kString)) {
    Fail(Cat("TypeError: the filter of a block must yield str, not ", TypeName(filtered)));
  }
  Print(filtered);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteWith(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, value] : node.assignments) values.push_back(Evaluate(value));
  const std::shared_ptr<Scope> around = scope_;
  const absl::Cleanup restore = [&] { scope_ = around; };
  scope_ = NewScope(around, node.frame);
  for (size_t i = 0; i < values.size(); ++i) Assign(node.assignments[i].first, values[i]);
  return Execute(node.frame.body);
}

void Interpreter::ExecuteCallBlock(const CallBlock& node) {
  const auto& call = std::get<jinja::Call>(node.call->node);
  const Value callee = Evaluate(call.callee);
  Arguments arguments = EvaluateArguments(call.arguments);
  arguments.named.emplace_back("caller", MakeMacro(node.callable));
  Print(Call(callee, std::move(arguments)));
}

void Interpreter::CheckNamespaces(const Target& target) {
  for (const Target& item : target.items) CheckNamespaces(item);
  if (target.attribute.empty()) return;
  const Value* object = scope_->Find(target.name);
  if (object == nullptr || !object->is(Kind::kNamespace)) Fail("cannot assign attribute on non-namespace object");
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    CheckNamespaces(target);
    scope_->Find(target.name)->as<NamespaceObject>().attributes.Set(Value::String(target.attribute), value);
    return;
  }
  if (!target.is_tuple) return scope_->Set(target.name, value);
  if (!IsIterable(value)) Fail(Cat("TypeError: cannot unpack non-iterable ", TypeName(value), " object"));
  const std::vector<Value> items = ToList(budget_, value);
  if (items.size() != target.items.size()) {
    Fail(Cat("ValueError: ", items.size() < target.items.size() ? "not enough" : "too many",
             " values to unpack (expected ", target.items.size(), ", got ", items.size(), ")"));
  }
  for (size_t i = 0; i < items.size(); ++i) Assign(target.items[i], items[i]);
}

}  // namespace quire::jinja
