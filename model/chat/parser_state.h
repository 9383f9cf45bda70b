#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/chat/ast.h"
#include "model/chat/lexer.h"

namespace quire::jinja {

// The expression half of the parser and what both halves share: the tokens, the names, the bound on nesting. The
// grammar is jinja2's, function by function.
class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(Tokenize(source)) {}

  // Reading tokens. The last one, of kind kEnd, is never passed.
  const Token& Now() const { return tokens_[position_]; }
  const Token& Ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& Take();
  bool IsName(std::string_view name) const { return Now().kind == TokenKind::kName && Now().text == name; }
  bool IsOperator(std::string_view op) const { return Now().kind == TokenKind::kOperator && Now().text == op; }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  void ExpectOperator(std::string_view op);
  void Expect(TokenKind kind, std::string_view what);
  std::string ExpectName();
  [[noreturn]] void Error(std::string message) const;
  std::string Describe() const;  // the current token

  NameId Intern(const std::string& name);

  // Parsing.
  ExpressionPtr ParseExpression(bool with_conditional = true);
  // Expressions with commas between make a tuple. `until` is a name that ends it, or empty.
  ExpressionPtr ParseTuple(bool with_conditional, std::string_view until, bool parentheses = false);
  Target ParseTarget(bool with_tuple, bool with_namespace, std::string_view until);
  // One filter or more; `input` may be null. `inline_start`: the first one has no bar before it.
  ExpressionPtr ParseFilters(ExpressionPtr input, bool inline_start);

  // Nesting of the source being parsed, of brackets and statements.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  std::vector<std::string> names_;
  // Filters and tests that do not exist: an error of the template unless an {% if %} or a conditional expression guards
  // them; then it is one when they are reached.
  std::vector<std::pair<std::string, int32_t>> unknown_;  // message and line

 private:
  // Bounds the height of the tree.
  ExpressionPtr Finish(Expression expression, int32_t deepest);

  ExpressionPtr ParseConditional();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseFiltered();
  ExpressionPtr ParseBinary(ExpressionPtr (ExpressionParser::*operand)(),
                            std::initializer_list<std::pair<std::string_view, BinaryOp>> operators);
  ExpressionPtr ParseUnary(bool with_filter);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNameOrConstant();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr node);
  ExpressionPtr ParseFilterTail(ExpressionPtr node);
  ExpressionPtr ParseSubscript(ExpressionPtr node);
  ExpressionPtr ParseSubscribed();
  ExpressionPtr ParseSlicePart();
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr ParseTest(ExpressionPtr input);
  CallArguments ParseCallArguments();
  void ParseArgument(CallArguments* arguments);
  std::string DottedName();
  Target ParseSimpleTarget(bool with_namespace);
  bool AtTupleEnd(std::string_view until) const;

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int32_t nesting_ = 0;
  absl::flat_hash_map<std::string, NameId> name_ids_;
};

}  // namespace quire::jinja
