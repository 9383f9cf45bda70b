#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/parser_state.h"

namespace quire::jinja {
namespace {

constexpr int32_t kMaxNesting = 200;  // of brackets, operators and statements in the source
constexpr int32_t kMaxHeight = 500;   // of an expression's tree: chains like a + b + c grow it as well

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser.nesting_ <= kMaxNesting) return;
  --parser.nesting_;
  parser.Error(Cat("the template nests deeper than ", kMaxNesting, " levels"));
}

const Token& ExpressionParser::Take() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!IsOperator(op)) return false;
  Take();
  return true;
}

void ExpressionParser::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) Error(Cat("expected '", op, "', got ", Describe()));
}

void ExpressionParser::Expect(TokenKind kind, std::string_view what) {
  if (Now().kind != kind) Error(Cat("expected ", what, ", got ", Describe()));
  Take();
}

std::string ExpressionParser::ExpectName() {
  if (Now().kind != TokenKind::kName) Error(Cat("expected a name, got ", Describe()));
  return Take().text;
}

void ExpressionParser::Error(std::string message) const {
  throw TemplateError(ErrorKind::kSyntax, std::move(message), Now().line);
}

std::string ExpressionParser::Describe() const {
  if (Now().kind == TokenKind::kEnd) return "the end of the template";
  if (Now().kind == TokenKind::kData) return "text";
  if (Now().kind == TokenKind::kString) return "a string";
  return Cat("'", Now().text, "'");
}

NameId ExpressionParser::Intern(const std::string& name) {
  const auto [entry, inserted] = name_ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (inserted) names_.push_back(name);
  return entry->second;
}

ExpressionPtr ExpressionParser::Finish(Expression expression, int32_t deepest) {
  expression.height = deepest + 1;
  if (expression.height > kMaxHeight) Error(Cat("an expression nests deeper than ", kMaxHeight, " levels"));
  return std::make_unique<Expression>(std::move(expression));
}

ExpressionPtr ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? ParseConditional() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseConditional() {
  const int32_t line = Now().line;
  const size_t unguarded = unknown_.size();
  ExpressionPtr then = ParseOr();
  while (SkipName("if")) {
    ExpressionPtr test = ParseOr();
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      const Nesting nesting(*this);
      otherwise = ParseConditional();
    }
    const int32_t deepest = std::max({HeightOf(test), HeightOf(then), HeightOf(otherwise)});
    then = Finish({Conditional{std::move(test), std::move(then), std::move(otherwise)}, line}, deepest);
    unknown_.resize(unguarded);
  }
  return then;
}

ExpressionPtr ExpressionParser::ParseOr() {
  const int32_t line = Now().line;
  ExpressionPtr left = ParseAnd();
  while (SkipName("or")) {
    ExpressionPtr right = ParseAnd();
    const int32_t deepest = std::max(HeightOf(left), HeightOf(right));
    left = Finish({Or{std::move(left), std::move(right)}, line}, deepest);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  const int32_t line = Now().line;
  ExpressionPtr left = ParseNot();
  while (SkipName("and")) {
    ExpressionPtr right = ParseNot();
    const int32_t deepest = std::max(HeightOf(left), HeightOf(right));
    left = Finish({And{std::move(left), std::move(right)}, line}, deepest);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(*this);
  const int32_t line = Take().line;
  ExpressionPtr operand = ParseNot();
  const int32_t deepest = HeightOf(operand);
  return Finish({Not{std::move(operand)}, line}, deepest);
}

ExpressionPtr ExpressionParser::ParseCompare() {
  constexpr std::pair<std::string_view, CompareOp> kOperators[] = {{"==", CompareOp::kEq}, {"!=", CompareOp::kNe},
                                                                   {"<", CompareOp::kLt},  {"<=", CompareOp::kLe},
                                                                   {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const int32_t line = Now().line;
  Compare node;
  node.first = ParseSum();
  int32_t deepest = HeightOf(node.first);
  const auto add = [&](CompareOp op) {
    node.rest.emplace_back(op, ParseSum());
    deepest = std::max(deepest, HeightOf(node.rest.back().second));
  };
  while (true) {
    const auto* op = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [this](const auto& entry) { return IsOperator(entry.first); });
    if (op != std::end(kOperators)) {
      Take();
      add(op->second);
    } else if (SkipName("in")) {
      add(CompareOp::kIn);
    } else if (IsName("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      Take();
      Take();
      add(CompareOp::kNotIn);
    } else {
      break;
    }
  }
  if (node.rest.empty()) return std::move(node.first);
  return Finish({std::move(node), line}, deepest);
}

ExpressionPtr ExpressionParser::ParseBinary(ExpressionPtr (ExpressionParser::*operand)(),
                                            std::initializer_list<std::pair<std::string_view, BinaryOp>> operators) {
  const int32_t line = Now().line;
  ExpressionPtr left = (this->*operand)();
  while (true) {
    const auto* op =
        std::find_if(operators.begin(), operators.end(), [this](const auto& entry) { return IsOperator(entry.first); });
    if (op == operators.end()) return left;
    Take();
    ExpressionPtr right = (this->*operand)();
    const int32_t deepest = std::max(HeightOf(left), HeightOf(right));
    left = Finish({Binary{op->second, std::move(left), std::move(right)}, line}, deepest);
  }
}

ExpressionPtr ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat, {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}});
}

ExpressionPtr ExpressionParser::ParseConcat() {
  const int32_t line = Now().line;
  Concat node;
  node.parts.push_back(ParseProduct());
  int32_t deepest = HeightOf(node.parts[0]);
  while (SkipOperator("~")) {
    node.parts.push_back(ParseProduct());
    deepest = std::max(deepest, HeightOf(node.parts.back()));
  }
  if (node.parts.size() == 1) return std::move(node.parts[0]);
  return Finish({std::move(node), line}, deepest);
}

ExpressionPtr ExpressionParser::ParseProduct() {
  return ParseBinary(
      &ExpressionParser::ParsePower,
      {{"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}});
}

// Unlike Python's, associates to the left and binds weaker than a sign.
ExpressionPtr ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseFiltered, {{"**", BinaryOp::kPow}});
}

ExpressionPtr ExpressionParser::ParseFiltered() { return ParseUnary(true); }

ExpressionPtr ExpressionParser::ParseUnary(bool with_filter) {
  const Nesting nesting(*this);
  const int32_t line = Now().line;
  ExpressionPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const bool negative = Take().text == "-";
    ExpressionPtr operand = ParseUnary(false);
    const int32_t deepest = HeightOf(operand);
    node = negative ? Finish({Negative{std::move(operand)}, line}, deepest)
                    : Finish({Positive{std::move(operand)}, line}, deepest);
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterTail(std::move(node)) : std::move(node);
}

}  // namespace quire::jinja
