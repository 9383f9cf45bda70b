#include "model/chat/builtins.h"
#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/parser_state.h"

// Literals, names, subscripts, calls, filters and tests.
namespace quire::jinja {
namespace {

int32_t HeightOf(const std::vector<ExpressionPtr>& children) {
  int32_t deepest = 0;
  for (const ExpressionPtr& child : children) deepest = std::max(deepest, HeightOf(child));
  return deepest;
}

int32_t HeightOf(const CallArguments& arguments) {
  int32_t deepest =
      std::max({HeightOf(arguments.positional), HeightOf(arguments.star), HeightOf(arguments.double_star)});
  for (const auto& [name, argument] : arguments.named) deepest = std::max(deepest, HeightOf(argument));
  return deepest;
}

}  // namespace

ExpressionPtr ExpressionParser::ParsePrimary() {
  const int32_t line = Now().line;
  switch (Now().kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString: {
      std::string text;
      while (Now().kind == TokenKind::kString) text += Take().text;
      return Finish({Constant{Value::String(std::move(text))}, line}, 0);
    }
    case TokenKind::kInteger:
      return Finish({Constant{Value::Integer(Take().integer)}, line}, 0);
    case TokenKind::kFloat:
      return Finish({Constant{Value::Float(Take().floating)}, line}, 0);
    default:
      break;
  }
  if (SkipOperator("(")) {
    ExpressionPtr node = ParseTuple(true, "", true);
    ExpectOperator(")");
    return node;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  Error(Cat("unexpected ", Describe()));
}

ExpressionPtr ExpressionParser::ParseNameOrConstant() {
  const Token& token = Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return Finish({Constant{Value::Bool(true)}, token.line}, 0);
  if (name == "false" || name == "False") return Finish({Constant{Value::Bool(false)}, token.line}, 0);
  if (name == "none" || name == "None") return Finish({Constant{Value::None()}, token.line}, 0);
  return Finish({Name{Intern(name)}, token.line}, 0);
}

bool ExpressionParser::AtTupleEnd(std::string_view until) const {
  return Now().kind == TokenKind::kVariableEnd || Now().kind == TokenKind::kBlockEnd || IsOperator(")") ||
         (!until.empty() && IsName(until));
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_conditional, std::string_view until, bool parentheses) {
  const int32_t line = Now().line;
  TupleLiteral tuple;
  bool is_tuple = false;
  while (true) {
    if (!tuple.items.empty()) ExpectOperator(",");
    if (AtTupleEnd(until)) break;
    tuple.items.push_back(ParseExpression(with_conditional));
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple.items.empty()) return std::move(tuple.items[0]);
    if (!parentheses) Error(Cat("expected an expression, got ", Describe()));
  }
  const int32_t deepest = HeightOf(tuple.items);
  return Finish({std::move(tuple), line}, deepest);
}

ExpressionPtr ExpressionParser::ParseList() {
  const int32_t line = Take().line;
  ListLiteral list;
  while (!IsOperator("]")) {
    if (!list.items.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    list.items.push_back(ParseExpression());
  }
  ExpectOperator("]");
  const int32_t deepest = HeightOf(list.items);
  return Finish({std::move(list), line}, deepest);
}

ExpressionPtr ExpressionParser::ParseDict() {
  const int32_t line = Take().line;
  DictLiteral dict;
  int32_t deepest = 0;
  while (!IsOperator("}")) {
    if (!dict.entries.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    ExpressionPtr key = ParseExpression();
    ExpectOperator(":");
    ExpressionPtr value = ParseExpression();
    deepest = std::max({deepest, HeightOf(key), HeightOf(value)});
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  ExpectOperator("}");
  return Finish({std::move(dict), line}, deepest);
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilterTail(ExpressionPtr node) {
  while (true) {
    if (IsOperator("|")) {
      node = ParseFilters(std::move(node), false);
    } else if (IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr node) {
  const int32_t line = Now().line;
  const int32_t height = HeightOf(node);
  if (SkipOperator(".")) {
    if (Now().kind == TokenKind::kName) return Finish({Attribute{std::move(node), Take().text}, line}, height);
    if (Now().kind != TokenKind::kInteger) Error("expected a name or a number after the dot");
    ExpressionPtr index = Finish({Constant{Value::Integer(Take().integer)}, line}, 0);
    return Finish({Subscript{std::move(node), std::move(index)}, line}, height);
  }
  Take();
  std::vector<ExpressionPtr> indices;
  while (!IsOperator("]")) {
    if (!indices.empty()) ExpectOperator(",");
    indices.push_back(ParseSubscribed());
  }
  ExpectOperator("]");
  const int32_t deepest = std::max(height, HeightOf(indices));
  ExpressionPtr index;
  if (indices.size() == 1) {
    index = std::move(indices[0]);
  } else {
    index = Finish({TupleLiteral{std::move(indices)}, line}, deepest);
  }
  return Finish({Subscript{std::move(node), std::move(index)}, line}, deepest + 1);
}

ExpressionPtr ExpressionParser::ParseSlicePart() {
  if (IsOperator("]") || IsOperator(",") || IsOperator(":")) return nullptr;
  return ParseExpression();
}

ExpressionPtr ExpressionParser::ParseSubscribed() {
  const int32_t line = Now().line;
  ExpressionPtr start;
  if (!IsOperator(":")) {
    start = ParseExpression();
    if (!IsOperator(":")) return start;
  }
  ExpectOperator(":");
  ExpressionPtr stop = ParseSlicePart();
  ExpressionPtr step;
  if (SkipOperator(":")) step = ParseSlicePart();
  const int32_t deepest = std::max({HeightOf(start), HeightOf(stop), HeightOf(step)});
  return Finish({Slice{std::move(start), std::move(stop), std::move(step)}, line}, deepest);
}

void ExpressionParser::ParseArgument(CallArguments* arguments) {
  const auto ensure = [this](bool holds) {
    if (!holds) Error("invalid syntax for function call expression");
  };
  if (SkipOperator("*")) {
    ensure(arguments->star == nullptr && arguments->double_star == nullptr);
    arguments->star = ParseExpression();
  } else if (SkipOperator("**")) {
    ensure(arguments->double_star == nullptr);
    arguments->double_star = ParseExpression();
  } else if (Now().kind == TokenKind::kName && Ahead().kind == TokenKind::kOperator && Ahead().text == "=") {
    ensure(arguments->double_star == nullptr);
    std::string name = Take().text;
    Take();
    for (const auto& [other, value] : arguments->named) {
      if (other == name) Error(Cat("keyword argument repeated: ", name));
    }
    arguments->named.emplace_back(std::move(name), ParseExpression());
  } else {
    ensure(arguments->star == nullptr && arguments->double_star == nullptr && arguments->named.empty());
    arguments->positional.push_back(ParseExpression());
  }
}

CallArguments ExpressionParser::ParseCallArguments() {
  CallArguments arguments;
  ExpectOperator("(");
  bool comma = false;
  while (!IsOperator(")")) {
    if (comma) {
      ExpectOperator(",");
      if (IsOperator(")")) break;
    }
    ParseArgument(&arguments);
    comma = true;
  }
  ExpectOperator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  const int32_t line = Now().line;
  CallArguments arguments = ParseCallArguments();
  const int32_t deepest = std::max(HeightOf(callee), HeightOf(arguments));
  return Finish({Call{std::move(callee), std::move(arguments)}, line}, deepest);
}

std::string ExpressionParser::DottedName() {
  std::string name = ExpectName();
  while (SkipOperator(".")) CatTo(&name, ".", ExpectName());
  return name;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr input, bool inline_start) {
  while (IsOperator("|") || inline_start) {
    if (!inline_start) Take();
    inline_start = false;
    const int32_t line = Now().line;
    std::string name = DottedName();
    if (!IsFilter(name)) unknown_.emplace_back(Cat("No filter named '", name, "'."), line);
    CallArguments arguments;
    if (IsOperator("(")) arguments = ParseCallArguments();
    const int32_t deepest = std::max(HeightOf(input), HeightOf(arguments));
    input = Finish({Filter{std::move(input), std::move(name), std::move(arguments)}, line}, deepest);
  }
  return input;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr input) {
  const int32_t line = Take().line;
  const bool negated = SkipName("not");
  std::string name = DottedName();
  if (!IsTest(name)) unknown_.emplace_back(Cat("No test named '", name, "'."), line);
  CallArguments arguments;
  const TokenKind kind = Now().kind;
  if (IsOperator("(")) {
    arguments = ParseCallArguments();
  } else if ((kind == TokenKind::kName && !IsName("else") && !IsName("or") && !IsName("and")) ||
             kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             IsOperator("[") || IsOperator("{")) {
    if (IsName("is")) Error("You cannot chain multiple tests with is");
    const Nesting nesting(*this);
    arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  const int32_t deepest = std::max(HeightOf(input), HeightOf(arguments));
  ExpressionPtr node = Finish({Test{std::move(input), std::move(name), std::move(arguments)}, line}, deepest);
  return negated ? Finish({Not{std::move(node)}, line}, deepest + 1) : std::move(node);
}

Target ExpressionParser::ParseSimpleTarget(bool with_namespace) {
  Target target;
  if (SkipOperator("(")) {
    const Nesting nesting(*this);
    target.is_tuple = true;
    // As jinja2: what stands in parentheses is a whole expression, so only plain names can be meant.
    while (!IsOperator(")")) {
      if (!target.items.empty()) ExpectOperator(",");
      if (IsOperator(")")) break;
      target.items.push_back(ParseSimpleTarget(false));
    }
    const bool comma = target.items.size() != 1 || tokens_[position_ - 1].text == ",";
    ExpectOperator(")");
    if (!comma) return std::move(target.items[0]);
    return target;
  }
  const std::string name = ExpectName();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) Error(Cat("can't assign to '", name, "'"));
  }
  target.name = Intern(name);
  if (with_namespace && SkipOperator(".")) target.attribute = ExpectName();
  return target;
}

Target ExpressionParser::ParseTarget(bool with_tuple, bool with_namespace, std::string_view until) {
  if (!with_tuple) return ParseSimpleTarget(with_namespace);
  Target tuple;
  tuple.is_tuple = true;
  bool comma = false;
  while (true) {
    if (!tuple.items.empty()) ExpectOperator(",");
    if (AtTupleEnd(until)) break;
    tuple.items.push_back(ParseSimpleTarget(with_namespace));
    if (!IsOperator(",")) break;
    comma = true;
  }
  if (comma) return tuple;
  if (tuple.items.empty()) Error(Cat("expected a name to assign to, got ", Describe()));
  return std::move(tuple.items[0]);
}

}  // namespace quire::jinja
