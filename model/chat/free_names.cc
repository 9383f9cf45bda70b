#include "model/chat/free_names.h"

#include <algorithm>
#include <type_traits>

#include "model/chat/children.h"

namespace quire::jinja {

FreeNames::FreeNames(const Block& block, std::vector<NameId> wanted) : wanted_(std::move(wanted)) { Visit(block); }

bool FreeNames::Reads(NameId name) const { return std::find(read_.begin(), read_.end(), name) != read_.end(); }

void FreeNames::Assign(NameId name) { std::erase(wanted_, name); }

void FreeNames::Assign(const Target& target) {
  if (!target.is_tuple && target.attribute.empty()) Assign(target.name);
  for (const Target& item : target.items) Assign(item);
}

void FreeNames::Visit(const Callable& callable) {
  for (const Parameter& parameter : callable.parameters) Assign(parameter.name);
  for (const Parameter& parameter : callable.parameters) Visit(parameter.default_value);
  Visit(callable.frame.body);
}

void FreeNames::Visit(const ExpressionPtr& expression) {
  if (expression != nullptr) Visit(*expression);
}

void FreeNames::Visit(const Expression& expression) {
  if (const auto* name = std::get_if<Name>(&expression.node); name != nullptr) {
    if (std::find(wanted_.begin(), wanted_.end(), name->name) != wanted_.end()) read_.push_back(name->name);
  }
  ForEachChild(expression, [this](const Expression& child) { Visit(child); });
}

void FreeNames::Visit(const Block& block) {
  for (const Statement& statement : block) {
    std::visit(
        [this](const auto& node) {
          using Node = std::decay_t<decltype(node)>;
          if constexpr (std::is_same_v<Node, Print>) {
            Visit(node.value);
          } else if constexpr (std::is_same_v<Node, If>) {
            for (const auto& [test, body] : node.branches) {
              Visit(test);
              Visit(body);
            }
            Visit(node.otherwise);
          } else if constexpr (std::is_same_v<Node, For>) {
            Assign(node.target);
            Visit(node.iterable);
            Visit(node.frame.body);
            Visit(node.otherwise.body);
            Visit(node.filter);
          } else if constexpr (std::is_same_v<Node, Set>) {
            Assign(node.target);
            Visit(node.value);
          } else if constexpr (std::is_same_v<Node, SetBlock>) {
            Assign(node.target);
            Visit(node.filter);
            Visit(node.frame.body);
          } else if constexpr (std::is_same_v<Node, Macro>) {
            Visit(*node.callable);
          } else if constexpr (std::is_same_v<Node, CallBlock>) {
            Visit(node.call);
            Visit(*node.callable);
          } else if constexpr (std::is_same_v<Node, FilterBlock>) {
            Visit(node.filter);
            Visit(node.frame.body);
          } else if constexpr (std::is_same_v<Node, With>) {
            for (const auto& [target, value] : node.assignments) Assign(target);
            for (const auto& [target, value] : node.assignments) Visit(value);
            Visit(node.frame.body);
          } else if constexpr (std::is_same_v<Node, Scoped>) {
            Visit(node.frame.body);
          }
        },
        statement.node);
  }
}

}  // namespace quire::jinja
