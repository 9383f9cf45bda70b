#pragma once

#include <type_traits>

#include "model/chat/ast.h"

namespace quire::jinja {

// Calls visit(child) for each expression right below `arguments` or `expression`; children that were left out are null
// and not visited.
template <typename Visit>
void ForEachChild(const CallArguments& arguments, const Visit& visit) {
  for (const ExpressionPtr& argument : arguments.positional) visit(*argument);
  for (const auto& [name, argument] : arguments.named) visit(*argument);
  if (arguments.star != nullptr) visit(*arguments.star);
  if (arguments.double_star != nullptr) visit(*arguments.double_star);
}

template <typename Visit>
void ForEachChild(const Expression& expression, const Visit& visit) {
  const auto visit_all = [&visit](std::initializer_list<const ExpressionPtr*> children) {
    for (const ExpressionPtr* child : children) {
      if (*child != nullptr) visit(**child);
    }
  };
  std::visit(
      [&](const auto& node) {
        using Node = std::decay_t<decltype(node)>;
        if constexpr (std::is_same_v<Node, ListLiteral> || std::is_same_v<Node, TupleLiteral>) {
          for (const ExpressionPtr& item : node.items) visit(*item);
        } else if constexpr (std::is_same_v<Node, DictLiteral>) {
          for (const auto& [key, value] : node.entries) visit_all({&key, &value});
        } else if constexpr (std::is_same_v<Node, Binary> || std::is_same_v<Node, And> || std::is_same_v<Node, Or>) {
          visit_all({&node.left, &node.right});
        } else if constexpr (std::is_same_v<Node, Concat>) {
          for (const ExpressionPtr& part : node.parts) visit(*part);
        } else if constexpr (std::is_same_v<Node, Not> || std::is_same_v<Node, Negative> ||
                             std::is_same_v<Node, Positive>) {
          visit_all({&node.operand});
        } else if constexpr (std::is_same_v<Node, Compare>) {
          visit(*node.first);
          for (const auto& [op, operand] : node.rest) visit(*operand);
        } else if constexpr (std::is_same_v<Node, Conditional>) {
          visit_all({&node.test, &node.then, &node.otherwise});
        } else if constexpr (std::is_same_v<Node, Attribute>) {
          visit(*node.object);
        } else if constexpr (std::is_same_v<Node, Subscript>) {
          visit_all({&node.object, &node.index});
        } else if constexpr (std::is_same_v<Node, Slice>) {
          visit_all({&node.start, &node.stop, &node.step});
        } else if constexpr (std::is_same_v<Node, Call>) {
          visit(*node.callee);
          ForEachChild(node.arguments, visit);
        } else if constexpr (std::is_same_v<Node, Filter> || std::is_same_v<Node, Test>) {
          visit_all({&node.input});
          ForEachChild(node.arguments, visit);
        } else {
          static_assert(std::is_same_v<Node, Constant> || std::is_same_v<Node, Name>);
        }
      },
      expression.node);
}

}  // namespace quire::jinja
