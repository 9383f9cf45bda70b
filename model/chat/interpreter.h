#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/civil_time.h"
#include "model/chat/ast.h"
#include "model/chat/budget.h"
#include "model/chat/operators.h"
#include "model/chat/value.h"

namespace quire::jinja {

// The names of one scope. A lookup goes on in the scopes around it; an assignment never does.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<NameId, Value>> names;
  bool captured = false;  // a macro or a loop refers to it

  explicit Scope(std::shared_ptr<Scope> around) : parent(std::move(around)) {}
  void Set(NameId name, Value value);
  const Value* Find(NameId name) const;  // here or around
};

// The state of a for loop: what `loop` is in its body. Elements are taken one at a time, so that a filter of the loop
// sees what its body did.
struct LoopObject : Object {
  Value iterable;
  NextFn next;
  std::optional<Value> after;  // taken already by `last`, `nextitem` or `length`
  Value current;
  Value before;
  std::optional<int64_t> length;
  std::optional<Value> changed;
  int64_t index0 = -1;
  int32_t depth0 = 0;
  Value recurse;  // a function of an iterable, for recursive loops

  bool Advance();
  bool IsLast();
  int64_t Length(Budget& budget);
};

// One rendering of a program. Throws TemplateError. Used once, by one thread.
class Interpreter {
 public:
  Interpreter(const Program& program, const Limits& limits, absl::CivilSecond now)
      : program_(program), budget_(limits), now_(now) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Renders with the entries of `context` as names.
  std::string Run(const DictObject& context);

  // For built-in functions.
  Budget& budget() { return budget_; }
  absl::CivilSecond now() const { return now_; }
  Value Call(const Value& callee, Arguments arguments);
  Value MakeNamespace(DictObject attributes);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  std::shared_ptr<Scope> NewScope(std::shared_ptr<Scope> around, const Frame& frame) const;

  // Statements. Printed text goes to *out_.
  Flow Execute(const Block& block);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const If& node);
  Flow ExecuteFor(const For& node);
  Flow ExecuteScoped(const Frame& frame);
  Flow ExecuteSetBlock(const SetBlock& node);
  Flow ExecuteFilterBlock(const FilterBlock& node);
  Flow ExecuteWith(const With& node);
  void ExecuteCallBlock(const CallBlock& node);
  // What follows from the else branch; what the body breaks ends here.
  Flow RunLoop(const For& node, const Value& iterable, int32_t depth0, std::shared_ptr<Scope> around);
  NextFn FilteredItems(const For& node, const Value& iterable, const std::shared_ptr<Scope>& around);
  void Assign(const Target& target, const Value& value);
  void CheckNamespaces(const Target& target);
  void Print(const Value& value);
  // What the frame prints. With a flow other than kNext, what it printed until then.
  std::string Capture(const Frame& frame, Flow* flow);

  // Expressions.
  Value Evaluate(const ExpressionPtr& expression);
  Value EvaluateNode(const Expression& expression);
  Value Lookup(NameId name);
  Value Missing(NameId name) const;
  Value EvaluateDict(const DictLiteral& node);
  Value EvaluateCompare(const Compare& node);
  Value EvaluateConditional(const Conditional& node);
  Value EvaluateSubscript(const Subscript& node);
  Value EvaluateConcat(const Concat& node);
  Value EvaluateFilter(const Filter& node, const Value* block_text);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& expressions);
  Arguments EvaluateArguments(const CallArguments& arguments);

  // Macros.
  void Retain(const std::shared_ptr<Scope>& scope);
  Value MakeMacro(std::shared_ptr<const Callable> callable);
  Value CallMacro(const std::shared_ptr<const Callable>& callable, const std::shared_ptr<Scope>& defined_in,
                  Arguments& arguments);
  void BindParameters(const Callable& callable, Arguments& arguments);
  void BindRest(const Callable& callable, Arguments& arguments);

  const Program& program_;
  Budget budget_;
  const absl::CivilSecond now_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int32_t line_ = 0;
  NameId loop_name_ = -1, caller_name_ = -1, kwargs_name_ = -1, varargs_name_ = -1;  // -1: the program has no such name
  // Scopes that a value refers to, and namespaces, can hold themselves or make long chains: all are kept to the end and
  // emptied one by one.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

}  // namespace quire::jinja
