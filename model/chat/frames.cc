#include "model/chat/frames.h"

#include <map>
#include <set>

#include "model/chat/children.h"

namespace quire::jinja {
namespace {

// The names that one frame mentions, in the order of the source.
class Symbols {
 public:
  explicit Symbols(const Symbols* around) : around_(around) {}

  void Load(NameId name) {
    if (!Knows(name)) names_[name] = Origin::kAround;
  }
  void Declare(NameId name) {
    assigned_.insert(name);
    names_[name] = Origin::kParameter;
  }
  void Assign(NameId name) {
    assigned_.insert(name);
    if (names_.contains(name)) return;
    const bool outside = around_ != nullptr && around_->Knows(name);
    names_[name] = outside ? Origin::kAround : Origin::kOwn;
  }
  void Assign(const Target& target, bool as_parameter) {
    for (const Target& item : target.items) Assign(item, as_parameter);
    if (target.is_tuple) return;
    if (!target.attribute.empty()) return Load(target.name);
    if (as_parameter) return Declare(target.name);
    Assign(target.name);
  }
  // Takes what the branches of an if did. A name that only some of them assign starts as what is around.
  void Merge(const std::vector<Symbols>& branches) {
    std::map<NameId, size_t> counts;
    for (const Symbols& branch : branches) {
      for (const NameId name : branch.assigned_) {
        if (!assigned_.contains(name)) ++counts[name];
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, origin] : branch.names_) names_[name] = origin;
      assigned_.insert(branch.assigned_.begin(), branch.assigned_.end());
    }
    for (const auto& [name, count] : counts) {
      if (count < branches.size()) names_[name] = Origin::kAround;
    }
  }

  std::vector<NameId> Hidden() const {
    std::vector<NameId> hidden;
    for (const auto& [name, origin] : names_) {
      if (origin == Origin::kOwn) hidden.push_back(name);
    }
    return hidden;
  }

 private:
  enum class Origin : uint8_t { kAround, kOwn, kParameter };

  bool Knows(NameId name) const { return names_.contains(name) || (around_ != nullptr && around_->Knows(name)); }

  const Symbols* around_;
  std::map<NameId, Origin> names_;
  std::set<NameId> assigned_;
};

void Read(const Expression& expression, Symbols* symbols) {
  if (const auto* name = std::get_if<Name>(&expression.node); name != nullptr) symbols->Load(name->name);
  ForEachChild(expression, [symbols](const Expression& child) { Read(child, symbols); });
}

void Read(const ExpressionPtr& expression, Symbols* symbols) {
  if (expression != nullptr) Read(*expression, symbols);
}

// What the statements of a frame mention themselves; frames within are left out.
void Mention(const Block& block, Symbols* symbols) {
  for (const Statement& statement : block) {
    std::visit(
        [symbols](const auto& node) {
          using Node = std::decay_t<decltype(node)>;
          if constexpr (std::is_same_v<Node, Print>) {
            Read(node.value, symbols);
          } else if constexpr (std::is_same_v<Node, If>) {
            Read(node.branches[0].first, symbols);
            // jinja2 sees three branches: the first, all the elifs in a row, and the else.
            std::vector<Symbols> branches(3, *symbols);
            Mention(node.branches[0].second, &branches[0]);
            for (size_t i = 1; i < node.branches.size(); ++i) {
              Read(node.branches[i].first, &branches[1]);
              std::vector<Symbols> inner(3, branches[1]);
              Mention(node.branches[i].second, &inner[0]);
              branches[1].Merge(inner);
            }
            Mention(node.otherwise, &branches[2]);
            symbols->Merge(branches);
          } else if constexpr (std::is_same_v<Node, For>) {
            Read(node.iterable, symbols);
          } else if constexpr (std::is_same_v<Node, Set>) {
            Read(node.value, symbols);
            symbols->Assign(node.target, false);
          } else if constexpr (std::is_same_v<Node, SetBlock>) {
            symbols->Assign(node.target, false);
          } else if constexpr (std::is_same_v<Node, Macro>) {
            symbols->Assign(node.name);
          } else if constexpr (std::is_same_v<Node, CallBlock>) {
            Read(node.call, symbols);
          } else if constexpr (std::is_same_v<Node, FilterBlock>) {
            Read(node.filter, symbols);
          } else if constexpr (std::is_same_v<Node, With>) {
            for (const auto& [target, value] : node.assignments) Read(value, symbols);
          }
        },
        statement.node);
  }
}

void ResolveWithin(Block* block, const Symbols& symbols);

void ResolveFrame(Frame* frame, Symbols* symbols) {
  Mention(frame->body, symbols);
  frame->hidden = symbols->Hidden();
  ResolveWithin(&frame->body, *symbols);
}

void ResolveCallable(Callable* callable, const Symbols& around) {
  Symbols symbols(&around);
  for (const Parameter& parameter : callable->parameters) symbols.Declare(parameter.name);
  for (const Parameter& parameter : callable->parameters) Read(parameter.default_value, &symbols);
  ResolveFrame(&callable->frame, &symbols);
}

// The frames that stand in a block.
void ResolveWithin(Block* block, const Symbols& around) {
  for (Statement& statement : *block) {
    std::visit(
        [&around](auto& node) {
          using Node = std::decay_t<decltype(node)>;
          Symbols symbols(&around);
          if constexpr (std::is_same_v<Node, If>) {
            for (auto& [test, body] : node.branches) ResolveWithin(&body, around);
            ResolveWithin(&node.otherwise, around);
          } else if constexpr (std::is_same_v<Node, For>) {
            Symbols otherwise(&around);
            ResolveFrame(&node.otherwise, &otherwise);
            symbols.Assign(node.target, true);
            ResolveFrame(&node.frame, &symbols);
          } else if constexpr (std::is_same_v<Node, With>) {
            for (const auto& [target, value] : node.assignments) symbols.Assign(target, true);
            ResolveFrame(&node.frame, &symbols);
          } else if constexpr (std::is_same_v<Node, SetBlock> || std::is_same_v<Node, FilterBlock> ||
                               std::is_same_v<Node, Scoped>) {
            ResolveFrame(&node.frame, &symbols);
          } else if constexpr (std::is_same_v<Node, Macro> || std::is_same_v<Node, CallBlock>) {
            ResolveCallable(node.callable.get(), around);
          }
        },
        statement.node);
  }
}

}  // namespace

void ResolveFrames(Program* program) {
  Symbols symbols(nullptr);
  ResolveFrame(&program->frame, &symbols);
}

}  // namespace quire::jinja
