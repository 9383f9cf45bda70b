#include "model/chat/parser.h"

#include "model/chat/cat.h"
#include "model/chat/error.h"
#include "model/chat/frames.h"
#include "model/chat/free_names.h"
#include "model/chat/parser_state.h"

namespace quire::jinja {
namespace {

std::string Join(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) CatTo(&text, text.empty() ? "" : "' or '", name);
  return text;
}

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Program Run() {
    Program program;
    program.frame.body = ParseBlock({});
    if (!unknown_.empty()) throw TemplateError(ErrorKind::kSyntax, unknown_[0].first, unknown_[0].second);
    ResolveFrames(&program);
    program.names = std::move(names_);
    return program;
  }

 private:
  // Statements up to a tag named in `ends`, whose name becomes the current token; up to the end if there are none.
  Block ParseBlock(std::vector<std::string_view> ends) {
    const Nesting nesting(*this);
    Block block;
    while (Now().kind != TokenKind::kEnd) {
      const int32_t line = Now().line;
      if (Now().kind == TokenKind::kData) {
        block.push_back({Text{Take().text}, line});
      } else if (Now().kind == TokenKind::kVariableBegin) {
        Take();
        block.push_back({Print{ParseTuple(true, "")}, line});
        Expect(TokenKind::kVariableEnd, "'}}'");
      } else {
        Expect(TokenKind::kBlockBegin, "a tag");
        for (const std::string_view end : ends) {
          if (IsName(end)) return block;
        }
        ParseStatement(ends, &block);
        Expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (!ends.empty()) {
      Error(Cat("Unexpected end of template. Looking for the following tags: '", Join(ends), "'"));
    }
    return block;
  }

  // The body of a tag: its end, the statements, and the name of the tag that ended it, which is taken.
  std::pair<Block, std::string> ParseBody(std::vector<std::string_view> ends) {
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "'%}'");
    Block block = ParseBlock(std::move(ends));
    std::string end = Take().text;
    return {std::move(block), std::move(end)};
  }

  void ParseStatement(const std::vector<std::string_view>& ends, Block* block) {
    using Method = void (Parser::*)(Block*);
    static constexpr std::pair<std::string_view, Method> kTags[] = {{"if", &Parser::ParseIf},
                                                                    {"for", &Parser::ParseFor},
                                                                    {"set", &Parser::ParseSet},
                                                                    {"macro", &Parser::ParseMacro},
                                                                    {"call", &Parser::ParseCallBlock},
                                                                    {"filter", &Parser::ParseFilterBlock},
                                                                    {"with", &Parser::ParseWith},
                                                                    {"print", &Parser::ParsePrint},
                                                                    {"break", &Parser::ParseBreak},
                                                                    {"continue", &Parser::ParseBreak},
                                                                    {"block", &Parser::ParseNamedBlock},
                                                                    {"generation", &Parser::ParseGeneration}};
    if (Now().kind != TokenKind::kName) Error(Cat("tag name expected, got ", Describe()));
    for (const auto& [tag, method] : kTags) {
      if (IsName(tag)) return (this->*method)(block);
    }
    std::string message = Cat("Encountered unknown tag '", Now().text, "'.");
    if (!ends.empty()) CatTo(&message, " Looking for the following tags: '", Join(ends), "'");
    Error(message);
  }

  void ParseIf(Block* block) {
    const int32_t line = Now().line;
    If node;
    const size_t unguarded = unknown_.size();
    std::string end = "elif";
    while (end == "elif") {
      if (node.branches.empty()) Take();  // the if
      ExpressionPtr test = ParseTuple(false, "");
      auto [body, next] = ParseBody({"elif", "else", "endif"});
      node.branches.emplace_back(std::move(test), std::move(body));
      end = next;
    }
    if (end == "else") node.otherwise = ParseBody({"endif"}).first;
    // jinja2 looks at what stands directly in the branches; what loops and macros in them hold it checks all the same.
    KeepHard(unguarded);
    block->push_back({std::move(node), line});
  }

  // Forgets the unknown filters since `from` but for those in scopes of their own.
  void KeepHard(size_t from) {
    size_t kept = from;
    for (size_t i = from; i < unknown_.size(); ++i) {
      if (i < hard_) unknown_[kept++] = unknown_[i];
    }
    unknown_.resize(kept);
    hard_ = std::min(hard_, kept);
  }

  // A body with a scope of its own: its unknown filters are errors even within an if.
  std::pair<Frame, std::string> ParseScope(std::vector<std::string_view> ends) {
    auto [body, end] = ParseBody(std::move(ends));
    hard_ = unknown_.size();
    return {Frame{std::move(body), {}}, std::move(end)};
  }

  void ParseFor(Block* block) {
    const int32_t line = Take().line;
    For node;
    node.target = ParseTarget(true, false, "in");
    if (!SkipName("in")) Error(Cat("expected 'in', got ", Describe()));
    if (AssignsName(node.target, Intern("loop"))) Error("Can't assign to special loop variable in for-loop target");
    node.iterable = ParseTuple(false, "recursive");
    if (SkipName("if")) node.filter = ParseExpression();
    node.recursive = SkipName("recursive");
    ++loops_;
    auto [frame, end] = ParseScope({"endfor", "else"});
    --loops_;
    node.frame = std::move(frame);
    if (end == "else") node.otherwise = ParseScope({"endfor"}).first;
    block->push_back({std::move(node), line});
  }

  static bool AssignsName(const Target& target, NameId name) {
    if (!target.is_tuple) return target.name == name;
    return std::any_of(target.items.begin(), target.items.end(),
                       [name](const Target& item) { return AssignsName(item, name); });
  }

  void ParseSet(Block* block) {
    const int32_t line = Take().line;
    Target target = ParseTarget(true, true, "");
    if (SkipOperator("=")) {
      block->push_back({Set{std::move(target), ParseTuple(true, "")}, line});
      return;
    }
    ExpressionPtr filter = ParseFilters(nullptr, false);
    Frame frame = ParseScope({"endset"}).first;
    block->push_back({SetBlock{std::move(target), std::move(filter), std::move(frame)}, line});
  }

  void ParseSignature(Callable* callable) {
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!callable->parameters.empty()) ExpectOperator(",");
      Parameter parameter;
      const Target target = ParseTarget(false, false, "");
      if (target.is_tuple) Error("a parameter is a name");
      parameter.name = target.name;
      for (const Parameter& other : callable->parameters) {
        if (other.name == target.name) Error("duplicate argument in the signature of a macro");
      }
      if (SkipOperator("=")) {
        parameter.default_value = ParseExpression();
      } else if (!callable->parameters.empty() && callable->parameters.back().default_value != nullptr) {
        Error("non-default argument follows default argument");
      }
      callable->parameters.push_back(std::move(parameter));
    }
    ExpectOperator(")");
  }

  void ParseCallableBody(std::string_view end, Callable* callable) {
    const int32_t loops = std::exchange(loops_, 0);
    callable->frame = ParseScope({end}).first;
    loops_ = loops;
    const NameId caller = Intern("caller");
    const NameId kwargs = Intern("kwargs");
    const NameId varargs = Intern("varargs");
    const FreeNames free(callable->frame.body, {caller, kwargs, varargs});
    callable->uses_caller = free.Reads(caller);
    callable->uses_kwargs = free.Reads(kwargs);
    callable->uses_varargs = free.Reads(varargs);
    for (const Parameter& parameter : callable->parameters) {
      if (parameter.name == kwargs) callable->uses_kwargs = false;
      if (parameter.name == varargs) callable->uses_varargs = false;
      if (parameter.name != caller || !callable->uses_caller) continue;
      callable->explicit_caller = true;
      if (parameter.default_value == nullptr) {
        Error("the special \"caller\" argument of a macro must be omitted or be given a default");
      }
    }
  }

  void ParseMacro(Block* block) {
    const int32_t line = Take().line;
    auto callable = std::make_shared<Callable>();
    callable->name = ExpectName();
    const NameId name = Intern(callable->name);
    ParseSignature(callable.get());
    ParseCallableBody("endmacro", callable.get());
    block->push_back({Macro{name, std::move(callable)}, line});
  }

  void ParseCallBlock(Block* block) {
    const int32_t line = Take().line;
    auto callable = std::make_shared<Callable>();
    if (IsOperator("(")) ParseSignature(callable.get());
    CallBlock node;
    node.call = ParseExpression();
    if (!std::holds_alternative<Call>(node.call->node)) Error("expected call");
    ParseCallableBody("endcall", callable.get());
    node.callable = std::move(callable);
    block->push_back({std::move(node), line});
  }

  void ParseFilterBlock(Block* block) {
    const int32_t line = Take().line;
    ExpressionPtr filter = ParseFilters(nullptr, true);
    block->push_back({FilterBlock{std::move(filter), ParseScope({"endfilter"}).first}, line});
  }

  void ParseWith(Block* block) {
    const int32_t line = Take().line;
    With node;
    while (Now().kind != TokenKind::kBlockEnd && Now().kind != TokenKind::kEnd) {
      if (!node.assignments.empty()) ExpectOperator(",");
      Target target = ParseTarget(true, false, "");
      ExpectOperator("=");
      node.assignments.emplace_back(std::move(target), ParseExpression());
    }
    node.frame = ParseScope({"endwith"}).first;
    block->push_back({std::move(node), line});
  }

  void ParsePrint(Block* block) {
    const int32_t line = Take().line;
    bool first = true;
    while (Now().kind != TokenKind::kBlockEnd && Now().kind != TokenKind::kEnd) {
      if (!first) ExpectOperator(",");
      first = false;
      block->push_back({Print{ParseExpression()}, line});
    }
  }

  void ParseBreak(Block* block) {
    const Token& token = Take();
    if (loops_ == 0) Error(Cat("'", token.text, "' outside loop"));
    if (token.text == "break") {
      block->push_back({Break{}, token.line});
    } else {
      block->push_back({Continue{}, token.line});
    }
  }

  // Nothing extends a chat template, so a block is a place that prints itself.
  void ParseNamedBlock(Block* block) {
    const int32_t line = Take().line;
    const std::string name = ExpectName();
    SkipName("scoped");
    SkipName("required");
    const int32_t loops = std::exchange(loops_, 0);
    Scoped node{ParseScope({"endblock"}).first};
    loops_ = loops;
    SkipName(name);
    block->push_back({std::move(node), line});
  }

  void ParseGeneration(Block* block) {
    const int32_t line = Take().line;
    const int32_t loops = std::exchange(loops_, 0);
    Scoped node{ParseScope({"endgeneration"}).first};
    loops_ = loops;
    block->push_back({std::move(node), line});
  }

  int32_t loops_ = 0;  // around the current statement, in the same function
  size_t hard_ = 0;    // the first so many of unknown_ stay errors within an if
};

}  // namespace

Program Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace quire::jinja
