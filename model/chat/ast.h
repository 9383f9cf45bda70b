#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/value.h"

// What the parser makes of a template. Immutable after parsing; any number of renderings read it at once.
namespace quire::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// Index into Program::names.
using NameId = int32_t;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // f(*star)
  ExpressionPtr double_star;  // f(**double_star)
};

struct Constant {
  Value value;
};
struct Name {
  NameId name;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
};
struct TupleLiteral {
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
struct Binary {
  BinaryOp op;
  ExpressionPtr left, right;
};
struct Concat {
  std::vector<ExpressionPtr> parts;
};  // a ~ b ~ c
struct And {
  ExpressionPtr left, right;
};
struct Or {
  ExpressionPtr left, right;
};
struct Not {
  ExpressionPtr operand;
};
struct Negative {
  ExpressionPtr operand;
};
struct Positive {
  ExpressionPtr operand;
};
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr test, then, otherwise;
};  // otherwise may be null
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr start, stop, step;
};  // each may be null
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
// `input` is null in {% filter %} and {% set x | f %}: the text of the block stands for it.
struct Filter {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Binary, Concat, And, Or, Not, Negative, Positive,
               Compare, Conditional, Attribute, Subscript, Slice, Call, Filter, Test>
      node;
  int32_t line = 0;
  int32_t height = 1;  // of the tree below: bounded
};

// 0 without an expression.
inline int32_t HeightOf(const ExpressionPtr& child) { return child == nullptr ? 0 : child->height; }

// What can stand left of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  NameId name = -1;
  std::string attribute;      // not empty: namespace attribute name.attribute
  std::vector<Target> items;  // a tuple if is_tuple
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

// Statements with a scope of their own.
struct Frame {
  Block body;
  std::vector<NameId> hidden;  // undefined from the beginning, whatever is around: see frames.h
};

struct Text {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // may be null
  Frame frame;
  Frame otherwise;
  bool recursive = false;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // may be null
  Frame frame;
};
struct Parameter {
  NameId name;
  ExpressionPtr default_value;  // may be null
};
struct Callable {
  std::string name;  // empty for call blocks
  std::vector<Parameter> parameters;
  Frame frame;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // the body reads these names
  bool explicit_caller = false;                                         // a parameter is called caller
};
struct Macro {
  NameId name;
  std::shared_ptr<Callable> callable;  // shared with the values that it makes
};
struct CallBlock {
  ExpressionPtr call;
  std::shared_ptr<Callable> callable;  // shared with the values that it makes
};
struct FilterBlock {
  ExpressionPtr filter;
  Frame frame;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Frame frame;
};
// {% generation %}, {% block %}
struct Scoped {
  Frame frame;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Text, Print, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Scoped, Break, Continue> node;
  int32_t line = 0;
};

struct Program {
  Frame frame;
  std::vector<std::string> names;
};

}  // namespace quire::jinja
