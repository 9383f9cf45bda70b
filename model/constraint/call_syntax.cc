#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/constraint/compile_util.h"
#include "model/constraint/schema_document.h"

namespace quire::constraint {
namespace {

// The rule of a function's arguments.
absl::StatusOr<int32_t> AddArguments(const CallSyntax::Function& function, CallSyntax::Arguments form,
                                     JsonWhitespace whitespace, NetworkBuilder* builder) {
  const ConstraintLimits& limits = builder->budget().limits();
  QUIRE_RETURN_IF_ERROR(CheckSource("schema", function.parameters, limits));
  QUIRE_ASSIGN_OR_RETURN(const auto document, SchemaDocument::Parse(function.parameters, limits));
  const bool is_python = form == CallSyntax::Arguments::kPython;
  return AddSchema(document.get(), is_python ? SchemaForm::kPythonArguments : SchemaForm::kJsonObject, whitespace,
                   builder);
}

}  // namespace

ConstraintOr CompileCalls(const CallSyntax& syntax, JsonWhitespace whitespace,
                          std::shared_ptr<const TokenVocabulary> vocabulary, const ConstraintLimits& limits,
                          Reasoning reasoning) {
  if (syntax.functions.empty()) return absl::InvalidArgumentError("there is no function to call");
  Budget budget(limits);
  NetworkBuilder builder(&budget);
  const auto fixed = [&](const std::string& text) { return Expression::Text(vocabulary->WithSpecialTokens(text)); };
  const Expression name_before = fixed(syntax.name_before), arguments_before = fixed(syntax.arguments_before),
                   call_after = fixed(syntax.call_after);
  std::vector<Expression> calls;
  for (const CallSyntax::Function& function : syntax.functions) {
    const absl::StatusOr<int32_t> arguments = AddArguments(function, syntax.arguments, whitespace, &builder);
    if (!arguments.ok()) {
      return absl::Status(arguments.status().code(),
                          absl::StrCat("function '", function.name, "': ", std::string(arguments.status().message())));
    }
    builder.RequireRule(*arguments, absl::StrCat("function '", function.name, "': its parameters allow no object"));
    const bool is_python = syntax.arguments == CallSyntax::Arguments::kPython;
    std::string name = is_python ? function.name : Json(function.name).dump(-1, ' ', /*ensure_ascii=*/false);
    calls.push_back(Expression::Concat(
        {name_before, Expression::Text(std::move(name)), arguments_before, Expression::Rule(*arguments), call_after}));
  }
  const int32_t call = builder.DeclareRule(), root = builder.DeclareRule();
  QUIRE_RETURN_IF_ERROR(builder.DefineRule(call, Expression::Choice(std::move(calls))));
  std::vector<Expression> parts = {fixed(syntax.before), Expression::Rule(call)};
  if (syntax.repeats) {
    parts.push_back(Expression::Repeat(Expression::Concat({fixed(syntax.between), Expression::Rule(call)}), 0,
                                       Expression::kUnlimited));
  }
  parts.push_back(fixed(syntax.after));
  QUIRE_RETURN_IF_ERROR(builder.DefineRule(root, Expression::Concat(std::move(parts))));
  return FinishConstraint(&builder, root, std::move(vocabulary), limits, reasoning);
}

}  // namespace quire::constraint
